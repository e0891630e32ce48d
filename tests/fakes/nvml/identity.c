/* Who a GPU is and what it reads when nobody set anything: derived from the model name, the seed and the position. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define GIB (1024.0 * 1024.0 * 1024.0)

/* The first row whose text occurs in the model name wins; the last row matches everything. */
static const struct model models[] = {
    {"GB200", 189471391744., 1200, 2062, 3996, 10, 10, 0, 0x294110DE, 148, 18944, 18, NVLINK_5_0, 6, true, true, true, false},
    {"B200", 191503532032., 1000, 1965, 3996, 10, 10, 0, 0x290110DE, 148, 18944, 18, NVLINK_5_0, 5, true, true, true, false},
    {"H200", 150754820096., 700, 1980, 3201, 9, 9, 0, 0x233510DE, 132, 16896, 18, NVLINK_4_0, 5, true, true, true, false},
    {"A100", 85899345920., 400, 1410, 1593, 7, 8, 0, 0x20B210DE, 108, 6912, 12, NVLINK_3_0, 4, false, true, true, false},
    {"L40S", 48305799168., 350, 2520, 9001, 8, 8, 9, 0x26B910DE, 142, 18176, 0, 0, 4, false, false, true, true},
    {"V100", 34359738368., 300, 1530, 877, 5, 7, 0, 0x1DB510DE, 80, 5120, 6, NVLINK_2_2, 3, false, false, false, false},
    {"", 85520809984., 700, 1980, 2619, 9, 9, 0, 0x233010DE, 132, 16896, 18, NVLINK_4_0, 5, true, true, true, false},
};

#define FIELD_INFO(id, unit, idle, group, flags) {#id, unit, idle, F_##group, flags},
const struct field_info field_info[F_COUNT] = {FIELDS(FIELD_INFO)};

#define LINK_NAME(id) #id,
const char *const link_field_name[L_COUNT] = {LINK_FIELDS(LINK_NAME)};

const struct model *model_named(const char *name) {
    const struct model *m = models;
    while (strstr(name, m->match) == NULL) m++;
    return m;
}

uint64_t hash_text(const char *text, uint64_t start) {
    uint64_t h = start ^ 0xcbf29ce484222325u;
    for (; *text != '\0'; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
    return h ^ (h >> 33);
}

static void format_uuid(char *out, size_t size, const char *prefix, const char *key) {
    uint64_t a = hash_text(key, 1), b = hash_text(key, 2);
    snprintf(out, size, "%s-%08x-%04x-%04x-%04x-%012llx", prefix, (unsigned)(a >> 32), (unsigned)(a >> 16) & 0xffff,
             (unsigned)a & 0xffff, (unsigned)(b >> 48), (unsigned long long)b & 0xffffffffffffu);
}

static void gpu_identity(struct scenario *s, unsigned gpu) {
    static const unsigned char bus[8] = {0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf};
    struct gpu *g = &s->gpu[gpu];
    char key[128];
    snprintf(key, sizeof key, "%s/%u", s->seed, gpu);
    format_uuid(g->uuid, sizeof g->uuid, "GPU", key);
    snprintf(g->serial, sizeof g->serial, "165%010llu", (unsigned long long)(hash_text(key, 3) % 10000000000u));
    snprintf(g->vbios, sizeof g->vbios, "96.00.89.00.01");
    snprintf(g->part_number, sizeof g->part_number, "692-2G520-0200-000");
    g->domain = gpu / 8;
    g->bus = bus[gpu % 8];
}

static void set_from_model(struct gpu *g) {
    double *v = g->unit.value;
    const struct model *m = g->model;
    v[F_fb_total] = m->memory_bytes;
    v[F_power_limit] = v[F_power_limit_default] = v[F_power_limit_max] = m->power_limit_w;
    v[F_power] = m->power_limit_w * 0.1;
    v[F_sm_clock_max] = m->sm_clock_mhz;
    v[F_mem_clock] = v[F_mem_clock_max] = m->mem_clock_mhz;
    v[F_pcie_gen] = v[F_pcie_gen_max] = m->pcie_gen;
    if (m->fan) v[F_fan] = 30;
    if (!m->mig) v[F_mig_mode] = NAN;
    if (m->nvlinks == 0) v[F_nvlink_tx] = v[F_nvlink_rx] = v[F_fabric_state] = NAN;
    if (m->row_remap) return;
    for (enum field f = F_remapped_rows_correctable; f <= F_remap_failed; f++) v[f] = NAN;
    v[F_retired_pages_sbe] = v[F_retired_pages_dbe] = v[F_retired_pending] = 0;
}

static void unit_clear(struct unit *u, bool is_mig) {
    for (int f = 0; f < F_COUNT; f++) {
        u->value[f] = is_mig ? NAN : field_info[f].idle;
        u->override[f] = NO_OVERRIDE;
    }
}

void gpu_defaults(struct scenario *s, unsigned gpu) {
    struct gpu *g = &s->gpu[gpu];
    if (g->name[0] == '\0') snprintf(g->name, sizeof g->name, "%s", s->model);
    g->model = model_named(g->name);
    unit_clear(&g->unit, false);
    g->unit.value[F_minor] = gpu;
    gpu_identity(s, gpu);
    set_from_model(g);
    for (unsigned link = 0; link < g->model->nvlinks; link++) g->link[link][L_up] = 1;
}

/* A training step in full swing: what `GPU busy` means. */
void gpu_busy(struct gpu *g) {
    double *v = g->unit.value;
    bool mig = v[F_mig_mode] > 0;
    v[F_power] = g->model->power_limit_w * 0.93;
    v[F_temp] = 62;
    v[F_mem_temp] = 74;
    v[F_sm_clock] = g->model->sm_clock_mhz;
    v[F_video_clock] = v[F_video_clock_max];
    v[F_util] = mig ? NAN : 99;
    v[F_mem_util] = mig ? NAN : 52;
    v[F_clock_event_reasons] = 0;
    v[F_fb_used] = floor(g->model->memory_bytes * 0.8 / GIB) * GIB;
    v[F_pcie_tx] = 1200;
    v[F_pcie_rx] = 2400;
    if (g->model->nvlinks > 0) v[F_nvlink_tx] = v[F_nvlink_rx] = 90000;
    v[F_graphics_active] = 97;
    v[F_sm_active] = 88;
    v[F_sm_occupancy] = 34;
    v[F_tensor_active] = v[F_hmma_active] = 47;
    v[F_dram_active] = 41;
    v[F_fp32_active] = 12;
    v[F_fp16_active] = 3;
}

bool mig_defaults(struct scenario *s, unsigned gpu, const char *profile, unsigned gi, unsigned ci) {
    struct gpu *g = &s->gpu[gpu];
    struct mig_device *m = &g->mig[g->mig_count];
    unsigned slices, gigabytes;
    char key[128];
    if (g->mig_count == MAX_MIG || sscanf(profile, "%ug.%ugb", &slices, &gigabytes) != 2) return false;
    g->mig_count++;
    snprintf(m->profile, sizeof m->profile, "%s", profile);
    m->gi = gi;
    m->ci = ci;
    m->slices = slices;
    unit_clear(&m->unit, true);
    m->unit.value[F_fb_total] = gigabytes * GIB;
    m->unit.value[F_fb_used] = m->unit.value[F_fb_reserved] = 0;
    m->unit.value[F_bar1_total] = 0;
    m->unit.value[F_bar1_used] = 0;
    snprintf(key, sizeof key, "%s/%u/%u/%u", s->seed, gpu, gi, ci);
    format_uuid(m->uuid, sizeof m->uuid, "MIG", key);
    return true;
}
