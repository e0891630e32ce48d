/* What the parts of the fake share: the parsed scenario, the lock around it, and the way into a call. */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "fields.h"
#include "nvml_abi.h"

enum { MAX_GPUS = 32, MAX_MIG = 8, MAX_LINKS = 18, MAX_PROCESSES = 4096, MAX_EVENTS = 256, MAX_UNITS = MAX_GPUS * (1 + MAX_MIG) };
enum { NO_OVERRIDE = -1, UNLINKED = 36 };

/* NVML's own numbers for generations of NVLink; the counters changed with 5.0. */
enum { NVLINK_2_2 = 3, NVLINK_3_0 = 4, NVLINK_4_0 = 6, NVLINK_5_0 = 7 };

/* A board as sold: defaults that follow from its name. */
struct model {
    const char *match;
    double memory_bytes, power_limit_w, sm_clock_mhz, mem_clock_mhz;
    unsigned architecture, capability_major, capability_minor, pci_device_id, sm_count, cores;
    unsigned nvlinks, nvlink_version, pcie_gen;
    bool gpm, mig, row_remap, fan;
};

/* A GPU or a MIG device: its numbers and what was done to its calls. */
struct unit {
    double value[F_COUNT];
    short override[F_COUNT];
    bool hang[F_COUNT];
};

struct mig_device {
    struct unit unit;
    char profile[32], uuid[80];
    unsigned gi, ci, slices;
};

struct gpu {
    struct unit unit;
    const struct model *model;
    char name[96], uuid[80], serial[30], vbios[32], part_number[80];
    unsigned domain, bus, device, mig_count;
    double link[MAX_LINKS][L_COUNT];
    struct mig_device mig[MAX_MIG];
};

enum process_kind { COMPUTE_PROCESS, GRAPHICS_PROCESS, MPS_PROCESS };
struct process {
    unsigned unit, pid;
    enum process_kind kind;
    unsigned long long bytes;
    char name[64];
};

struct event {
    uint64_t id;
    unsigned gpu, gi, ci;
    unsigned long long type, data;
};

struct scenario {
    char driver[80], nvml_version[80], seed[64], model[96];
    unsigned gpus, order[MAX_GPUS], order_count, process_count, event_count;
    int cuda, init_error, wait_error;
    bool hang_init, hang_count, hang_wait;
    double noise;
    struct gpu gpu[MAX_GPUS];
    struct process process[MAX_PROCESSES];
    struct event event[MAX_EVENTS];
};

/* Units are numbered GPUs first, then MIG devices, so a counter survives any rewrite of the scenario. */
static inline unsigned gpu_unit(unsigned gpu) { return gpu; }
static inline unsigned mig_unit(unsigned gpu, unsigned mig) { return MAX_GPUS + gpu * MAX_MIG + mig; }
static inline unsigned unit_gpu(unsigned unit) { return unit < MAX_GPUS ? unit : (unit - MAX_GPUS) / MAX_MIG; }
static inline bool unit_is_mig(unsigned unit) { return unit >= MAX_GPUS; }
const struct unit *unit_of(const struct scenario *s, unsigned unit);
bool unit_exists(const struct scenario *s, unsigned unit);

/* identity.c */
const struct model *model_named(const char *name);
void gpu_defaults(struct scenario *s, unsigned gpu);
void gpu_busy(struct gpu *g);
bool mig_defaults(struct scenario *s, unsigned gpu, const char *profile, unsigned gi, unsigned ci);
uint64_t hash_text(const char *text, uint64_t start);

/* parse.c: NULL with a message in `problem` when the text is no scenario. */
struct scenario *scenario_parse(char *text, char *problem, size_t size);
int event_type_named(const char *name, unsigned long long *type);

/* scenario.c: one lock guards everything; `current()` only while it is held. */
void lock(void);
void unlock(void);
const struct scenario *current(void);
void refresh(void);
bool initialized(void);
void wait_for_change(int64_t until_ns);
void announce_change(void);
int64_t monotonic_ns(void);
int64_t epoch_us(void);

/* watch.c */
bool watched(const char *path);

/* counters.c: what grows with time. */
enum counter {
    C_energy, C_pcie_tx, C_pcie_rx, C_nvlink_tx, C_nvlink_rx,
    C_power, C_thermal, C_sync_boost, C_board_limit, C_low_utilization, C_reliability, C_app_clocks, C_base_clocks,
    C_sw_thermal, C_hw_thermal, C_hw_power_brake,
    C_GPM, C_GPM_LAST = C_GPM + F_fp16_active - F_graphics_active,
    C_gpm_pcie_tx, C_gpm_pcie_rx, C_gpm_nvlink_tx, C_gpm_nvlink_rx,
    C_COUNT
};
void counters_advance(const struct scenario *s, unsigned unit);
void counters_rebase(const struct scenario *before, const struct scenario *after);
int64_t counters_upto(unsigned unit);
double counter_value(unsigned unit, enum counter counter);
bool field_is_counter(enum field field, enum counter *counter);

/* call.c: a call that passed call_begin holds the lock until call_end. */
struct call {
    const struct scenario *scenario;
    const struct gpu *gpu;
    const struct mig_device *mig;
    const struct unit *data;
    unsigned unit;
};
nvmlReturn_t call_begin(struct call *call, nvmlDevice_t device, enum field gate);
nvmlReturn_t call_begin_gpu(struct call *call, nvmlDevice_t device, enum field gate);
void call_end(void);
nvmlReturn_t link_refusal(const struct gpu *gpu, unsigned link, enum link_field code);
nvmlReturn_t override_of(const struct unit *unit, enum field field);
nvmlReturn_t value_of(const struct call *call, enum field field, double *value);
nvmlReturn_t read_u32(nvmlDevice_t device, enum field field, double scale, unsigned *out);
nvmlReturn_t read_u64(nvmlDevice_t device, enum field field, unsigned long long *out);
nvmlReturn_t copy_text(const char *text, char *out, unsigned length);
unsigned to_u32(double value);
unsigned long long to_u64(double value);
nvmlDevice_t handle_of(unsigned unit);
bool unit_of_handle(nvmlDevice_t device, unsigned *unit);
bool unit_hangs(const struct unit *unit, enum field field);
void sleep_ms(long ms);

/* events.c */
void events_dispatch(const struct scenario *s);

#endif
