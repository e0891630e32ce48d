/* The way into every call: handle to unit, hang and error of the scenario, then a value. */
#include <string.h>
#include <time.h>

#include "fake.h"

/* Handles are addresses into this array; they outlive every scenario. */
struct nvmlDevice_st {
    char unused;
};
static struct nvmlDevice_st handles[MAX_UNITS];

nvmlDevice_t handle_of(unsigned unit) { return (nvmlDevice_t){&handles[unit]}; }

bool unit_of_handle(nvmlDevice_t device, unsigned *unit) {
    if (device.handle < handles || device.handle >= handles + MAX_UNITS) return false;
    *unit = (unsigned)(device.handle - handles);
    return true;
}

static unsigned mig_index(unsigned unit) { return (unit - MAX_GPUS) % MAX_MIG; }

const struct unit *unit_of(const struct scenario *s, unsigned unit) {
    const struct gpu *g = &s->gpu[unit_gpu(unit)];
    return unit_is_mig(unit) ? &g->mig[mig_index(unit)].unit : &g->unit;
}

bool unit_exists(const struct scenario *s, unsigned unit) {
    unsigned gpu = unit_gpu(unit);
    return gpu < s->gpus && (!unit_is_mig(unit) || mig_index(unit) < s->gpu[gpu].mig_count);
}

void sleep_ms(long ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* The nearest word on a field: its own, its group's, then that of `all`. */
static int nearest_override(const struct unit *u, enum field field) {
    while (u->override[field] == NO_OVERRIDE && field != F_all) field = field_info[field].group;
    return u->override[field];
}

nvmlReturn_t override_of(const struct unit *unit, enum field field) {
    int code = nearest_override(unit, field);
    return code == NO_OVERRIDE ? NVML_SUCCESS : (nvmlReturn_t)code;
}

/* A handle stays obtainable while all else hangs, as it does where a driver answers it from memory. */
bool unit_hangs(const struct unit *u, enum field field) {
    if (field == F_handle) return u->hang[F_handle];
    while (!u->hang[field] && field != F_all) field = field_info[field].group;
    return u->hang[field];
}

static nvmlReturn_t resolve(struct call *c, nvmlDevice_t device) {
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (!unit_of_handle(device, &c->unit)) return NVML_ERROR_INVALID_ARGUMENT;
    c->scenario = current();
    if (!unit_exists(c->scenario, c->unit)) return NVML_ERROR_GPU_IS_LOST;
    c->gpu = &c->scenario->gpu[unit_gpu(c->unit)];
    c->mig = unit_is_mig(c->unit) ? &c->gpu->mig[mig_index(c->unit)] : NULL;
    c->data = unit_of(c->scenario, c->unit);
    return NVML_SUCCESS;
}

/* A refusal on the parent leaves its MIG devices alone; a lost or stuck parent takes them along. */
static nvmlReturn_t inherited(const struct call *c) {
    if (c->mig != NULL && c->gpu->unit.override[F_all] == NVML_ERROR_GPU_IS_LOST) return NVML_ERROR_GPU_IS_LOST;
    return NVML_SUCCESS;
}

static bool stuck(const struct call *c, enum field gate) {
    return unit_hangs(c->data, gate) || (c->mig != NULL && c->gpu->unit.hang[F_all] && gate != F_handle);
}

nvmlReturn_t call_begin(struct call *c, nvmlDevice_t device, enum field gate) {
    for (;;) {
        lock();
        refresh();
        nvmlReturn_t result = resolve(c, device);
        if (result == NVML_SUCCESS && stuck(c, gate)) {
            unlock();
            sleep_ms(20);
            continue;
        }
        if (result == NVML_SUCCESS) result = inherited(c);
        if (result == NVML_SUCCESS) result = override_of(c->data, gate);
        if (result != NVML_SUCCESS) unlock();
        return result;
    }
}

nvmlReturn_t call_begin_gpu(struct call *c, nvmlDevice_t device, enum field gate) {
    nvmlReturn_t result = call_begin(c, device, gate);
    if (result != NVML_SUCCESS || c->mig == NULL) return result;
    unlock();
    return NVML_ERROR_NOT_SUPPORTED;
}

void call_end(void) { unlock(); }

/* A single link may refuse to tell its state, or what it counts. */
nvmlReturn_t link_refusal(const struct gpu *g, unsigned link, enum link_field code) {
    return (nvmlReturn_t)g->link[link][code];
}

/* ---- values ---- */

/* Between -1 and 1, the same for everyone who asks within a tenth of a second. */
static double jitter(const struct call *c, enum field field) {
    uint64_t h = hash_text(c->scenario->seed, (uint64_t)(epoch_us() / 100000));
    h = (h ^ (c->unit * 1000003u + (unsigned)field)) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
    return (double)(h >> 11) / 4503599627370496.0 - 1;
}

/* What a field reads when the scenario leaves it open. */
static enum field substitute(enum field field) {
    switch (field) {
    case F_power_average:
    case F_power_instant: return F_power;
    case F_power_limit_requested: return F_power_limit;
    case F_graphics_clock: return F_sm_clock;
    case F_graphics_clock_max:
    case F_app_graphics_clock:
    case F_app_sm_clock: return F_sm_clock_max;
    case F_app_mem_clock: return F_mem_clock_max;
    case F_mig_mode_pending: return F_mig_mode;
    default: return F_COUNT;
    }
}

static double open_value(const struct call *c, enum field field) {
    const double *v = c->data->value;
    if (field == F_temp_margin) return v[F_temp_gpu_max] - v[F_temp];
    enum field other = substitute(field);
    return other == F_COUNT ? NAN : v[other];
}

static double with_noise(const struct call *c, enum field field, double value) {
    if (c->scenario->noise == 0 || !(field_info[field].flags & NOISY)) return value;
    value *= 1 + c->scenario->noise * jitter(c, field);
    return strcmp(field_info[field].unit, "_pct") == 0 && value > 100 ? 100 : value;
}

nvmlReturn_t value_of(const struct call *c, enum field field, double *value) {
    enum counter counter;
    nvmlReturn_t result = override_of(c->data, field);
    if (result != NVML_SUCCESS) return result;
    if (c->mig == NULL && field_is_counter(field, &counter)) {
        counters_advance(c->scenario, c->unit);
        *value = counter_value(c->unit, counter);
        return NVML_SUCCESS;
    }
    *value = c->data->value[field];
    if (isnan(*value)) *value = open_value(c, field);
    if (isnan(*value)) return NVML_ERROR_NOT_SUPPORTED;
    *value = with_noise(c, field, *value);
    return NVML_SUCCESS;
}

/* Numbers too large for their type saturate, as a driver's do when a reading runs wild. */
unsigned to_u32(double value) { return value <= 0 ? 0 : value >= 4294967295.0 ? 4294967295u : (unsigned)(value + 0.5); }
unsigned long long to_u64(double value) {
    return value <= 0 ? 0 : value >= 18446744073709549568.0 ? ~0ull : (unsigned long long)(value + 0.5);
}

nvmlReturn_t read_u32(nvmlDevice_t device, enum field field, double scale, unsigned *out) {
    struct call c;
    double value = 0;
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, device, field);
    if (result != NVML_SUCCESS) return result;
    result = value_of(&c, field, &value);
    call_end();
    if (result == NVML_SUCCESS) *out = to_u32(value * scale);
    return result;
}

nvmlReturn_t read_u64(nvmlDevice_t device, enum field field, unsigned long long *out) {
    struct call c;
    double value = 0;
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, device, field);
    if (result != NVML_SUCCESS) return result;
    result = value_of(&c, field, &value);
    call_end();
    if (result == NVML_SUCCESS) *out = to_u64(value);
    return result;
}

nvmlReturn_t copy_text(const char *text, char *out, unsigned length) {
    size_t n = strlen(text) + 1;
    if (n > length) return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text, n);
    return NVML_SUCCESS;
}
