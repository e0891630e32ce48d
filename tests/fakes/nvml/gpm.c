/* GPU performance monitoring: the mean of each metric between two samples. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { LIVE = 0x48454c52 };

struct nvmlGpmSample_st {
    unsigned state, unit;
    int64_t taken_ns;
    double total[C_COUNT];
};

NVML_API nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    if (sample == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    sample->handle = calloc(1, sizeof *sample->handle);
    if (sample->handle == NULL) return NVML_ERROR_MEMORY;
    sample->handle->state = LIVE;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    if (sample.handle == NULL || sample.handle->state != LIVE) return NVML_ERROR_INVALID_ARGUMENT;
    sample.handle->state = 0;
    free(sample.handle);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) {
    struct call c;
    if (support == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (support->version != 1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = call_begin(&c, device, F_gpm);
    if (result != NVML_SUCCESS && result != NVML_ERROR_NOT_SUPPORTED) return result;
    support->isSupportedDevice = result == NVML_SUCCESS && c.gpu->model->gpm;
    if (result == NVML_SUCCESS) call_end();
    return NVML_SUCCESS;
}

/* With the lock held. */
static void take(const struct scenario *s, unsigned unit, struct nvmlGpmSample_st *sample) {
    counters_advance(s, unit);
    sample->unit = unit;
    sample->taken_ns = counters_upto(unit);
    for (int i = 0; i < C_COUNT; i++) sample->total[i] = counter_value(unit, (enum counter)i);
}

NVML_API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    struct call c;
    if (sample.handle == NULL || sample.handle->state != LIVE) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, device, F_gpm);
    if (result != NVML_SUCCESS) return result;
    if (c.gpu->model->gpm) take(c.scenario, c.unit, sample.handle);
    else result = NVML_ERROR_NOT_SUPPORTED;
    call_end();
    return result;
}

NVML_API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gi, nvmlGpmSample_t sample) {
    struct call c;
    if (sample.handle == NULL || sample.handle->state != LIVE) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin_gpu(&c, device, F_gpm);
    if (result != NVML_SUCCESS) return result;
    unsigned mig = 0;
    while (mig < c.gpu->mig_count && c.gpu->mig[mig].gi != gi) mig++;
    if (!c.gpu->model->gpm) result = NVML_ERROR_NOT_SUPPORTED;
    else if (mig == c.gpu->mig_count) result = NVML_ERROR_INVALID_ARGUMENT;
    else take(c.scenario, mig_unit(c.unit, mig), sample.handle);
    call_end();
    return result;
}

/* ---- metrics ---- */

enum unit_kind { PERCENT, MIB_S };
struct metric {
    unsigned id;
    enum counter counter;
    enum field field;
    enum unit_kind kind;
    const char *name;
};
#define ACTIVE(id, field, name) {id, (enum counter)(C_GPM + F_##field - F_graphics_active), F_##field, PERCENT, name}
static const struct metric metrics[] = {
    ACTIVE(1, graphics_active, "GRACT"),
    ACTIVE(2, sm_active, "SMUTIL"),
    ACTIVE(3, sm_occupancy, "SMOCC"),
    ACTIVE(4, integer_active, "INTUTIL"),
    ACTIVE(5, tensor_active, "TENSOR"),
    ACTIVE(6, dfma_active, "DFMA"),
    ACTIVE(7, hmma_active, "HMMA"),
    ACTIVE(8, dmma_active, "DMMA"),
    ACTIVE(9, imma_active, "IMMA"),
    ACTIVE(10, dram_active, "DRAMBW"),
    ACTIVE(11, fp64_active, "FP64"),
    ACTIVE(12, fp32_active, "FP32"),
    ACTIVE(13, fp16_active, "FP16"),
    {20, C_gpm_pcie_tx, F_pcie_tx, MIB_S, "PCITX"},
    {21, C_gpm_pcie_rx, F_pcie_rx, MIB_S, "PCIRX"},
    {60, C_gpm_nvlink_rx, F_nvlink_rx, MIB_S, "NVLRX"},
    {61, C_gpm_nvlink_tx, F_nvlink_tx, MIB_S, "NVLTX"},
};

/* Ids 62 to 97 are received and sent of links 0 to 17, alternating. */
static const struct metric *metric_for(unsigned id, int *link) {
    *link = id >= 62 && id <= 97 ? (int)(id - 62) / 2 : -1;
    unsigned wanted = *link < 0 ? id : id % 2 == 0 ? 60 : 61;
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (metrics[i].id == wanted) return &metrics[i];
    return NULL;
}

static double up_links(const struct gpu *g) {
    double up = 0;
    for (unsigned link = 0; link < g->model->nvlinks; link++) up += g->link[link][L_up] != 0;
    return up;
}

static void compute(const struct scenario *s, const struct nvmlGpmSample_st *a, const struct nvmlGpmSample_st *b,
                    nvmlGpmMetric_t *out) {
    static char percent[] = "%", rate[] = "MiB/s";
    int link;
    const struct metric *m = metric_for(out->metricId, &link);
    const struct gpu *g = &s->gpu[unit_gpu(a->unit)];
    out->value = 0;
    out->nvmlReturn = m == NULL ? NVML_ERROR_NOT_SUPPORTED : override_of(unit_of(s, a->unit), m->field);
    bool unlinked = out->metricId >= 60 && (g->model->nvlinks == 0 || link >= (int)g->model->nvlinks);
    if (m != NULL && unlinked) out->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    if (out->nvmlReturn != NVML_SUCCESS) return;
    double seconds = (double)(b->taken_ns - a->taken_ns) / 1e9;
    if (seconds <= 0) {
        out->nvmlReturn = NVML_ERROR_NO_DATA;
        return;
    }
    out->value = (b->total[m->counter] - a->total[m->counter]) / seconds;
    if (link >= 0) out->value = g->link[link][L_up] != 0 ? out->value / up_links(g) : 0;
    char *name = (char *)(uintptr_t)m->name;
    out->metricInfo = (nvmlGpmMetricMetricInfo_t){name, name, m->kind == PERCENT ? percent : rate};
}

static bool usable(const nvmlGpmMetricsGet_t *get) {
    const struct nvmlGpmSample_st *a = get->sample1.handle, *b = get->sample2.handle;
    if (a == NULL || b == NULL || a->state != LIVE || b->state != LIVE) return false;
    return a->taken_ns != 0 && b->taken_ns != 0 && a->unit == b->unit;
}

NVML_API nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    struct call c;
    if (get == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (get->version != 1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!usable(get)) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, handle_of(get->sample1.handle->unit), F_gpm);
    if (result != NVML_SUCCESS) return result;
    for (unsigned i = 0; i < get->numMetrics; i++) compute(c.scenario, get->sample1.handle, get->sample2.handle, &get->metrics[i]);
    call_end();
    return NVML_SUCCESS;
}
