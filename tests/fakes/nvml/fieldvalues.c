/* nvmlDeviceGetFieldValues: numbers by id, each with its own return code. */
#include "fake.h"

/* Plain values, ids rising. `scale` turns the scenario's unit into NVML's. */
struct row {
    unsigned id;
    enum field field;
    nvmlValueType_t type;
    double scale;
};
#define U32 NVML_VALUE_TYPE_UNSIGNED_INT
#define U64 NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
#define S32 NVML_VALUE_TYPE_SIGNED_INT
static const struct row rows[] = {
    {1, F_ecc_mode, U32, 1},
    {2, F_ecc_mode_pending, U32, 1},
    {3, F_ecc_corrected_volatile, U64, 1},
    {4, F_ecc_uncorrected_volatile, U64, 1},
    {5, F_ecc_corrected_aggregate, U64, 1},
    {6, F_ecc_uncorrected_aggregate, U64, 1},
    {11, F_ecc_corrected_volatile, U64, 1}, /* 11, 12, 22, 23: the part in device memory, which is all of it */
    {12, F_ecc_uncorrected_volatile, U64, 1},
    {22, F_ecc_corrected_aggregate, U64, 1},
    {23, F_ecc_uncorrected_aggregate, U64, 1},
    {29, F_retired_pages_sbe, U64, 1},
    {30, F_retired_pages_dbe, U64, 1},
    {31, F_retired_pending, U32, 1},
    {74, F_violation_power, U64, 1}, /* 74-81: nanoseconds */
    {75, F_violation_thermal, U64, 1},
    {76, F_violation_sync_boost, U64, 1},
    {77, F_violation_board_limit, U64, 1},
    {78, F_violation_low_utilization, U64, 1},
    {79, F_violation_reliability, U64, 1},
    {80, F_violation_app_clocks, U64, 1},
    {81, F_violation_base_clocks, U64, 1},
    {82, F_mem_temp, U32, 1},
    {83, F_energy, U64, 1}, /* mJ */
    {94, F_pcie_replays, U32, 1},
    {95, F_pcie_replay_rollovers, U32, 1},
    {142, F_remapped_rows_correctable, U32, 1},
    {143, F_remapped_rows_uncorrectable, U32, 1},
    {144, F_remap_pending, U32, 1},
    {145, F_remap_failed, U32, 1},
    {169, F_pcie_recoveries, U64, 1},
    {173, F_pcie_correctable_errors, U32, 1},
    {174, F_pcie_naks_received, U32, 1},
    {175, F_pcie_receiver_errors, U32, 1},
    {176, F_pcie_bad_tlp, U32, 1},
    {177, F_pcie_naks_sent, U32, 1},
    {178, F_pcie_bad_dllp, U32, 1},
    {179, F_pcie_nonfatal_errors, U32, 1},
    {180, F_pcie_fatal_errors, U32, 1},
    {181, F_pcie_unsupported_requests, U32, 1},
    {182, F_pcie_lcrc_errors, U32, 1},
    {183, F_pcie_lane_errors, U32, 1},
    {185, F_power_average, U32, 1000}, /* mW */
    {186, F_power_instant, U32, 1000},
    {187, F_power_limit_min, U32, 1000},
    {188, F_power_limit_max, U32, 1000},
    {189, F_power_limit_default, U32, 1000},
    {190, F_power_limit, U32, 1000},
    {191, F_energy, U64, 1},
    {192, F_power_limit_requested, U32, 1000},
    {193, F_tlimit_shutdown, S32, 1},
    {194, F_tlimit_slowdown, S32, 1},
    {195, F_tlimit_mem_max, S32, 1},
    {196, F_tlimit_gpu_max, S32, 1},
    {197, F_pcie_tx_total, U32, 1},
    {198, F_pcie_rx_total, U32, 1},
    {230, F_recovery_action, U32, 1},
    {269, F_event_sw_thermal, U64, 1},
    {270, F_event_hw_thermal, U64, 1},
    {271, F_event_hw_power_brake, U64, 1},
};

static const struct row *row_for(unsigned id) {
    size_t low = 0, high = sizeof rows / sizeof *rows;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (rows[middle].id == id) return &rows[middle];
        if (rows[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* NVLink counters. `first` is link 0 (or the only id, where the link comes as scopeId); links 6 to 11 got ids later. */
enum how { LINK_IDS, TOTAL_ID, BY_SCOPE };
struct link_row {
    unsigned first, last;
    enum link_field field;
    enum how how;
    unsigned link;
    bool nvlink5;
};
static const struct link_row link_rows[] = {
    {32, 37, L_crc_flit, LINK_IDS, 0, false},      {38, 38, L_crc_flit, TOTAL_ID, 0, false},
    {39, 44, L_crc_data, LINK_IDS, 0, false},      {45, 45, L_crc_data, TOTAL_ID, 0, false},
    {46, 51, L_replay, LINK_IDS, 0, false},        {52, 52, L_replay, TOTAL_ID, 0, false},
    {53, 58, L_recovery, LINK_IDS, 0, false},      {59, 59, L_recovery, TOTAL_ID, 0, false},
    {96, 101, L_crc_flit, LINK_IDS, 6, false},     {102, 107, L_crc_data, LINK_IDS, 6, false},
    {108, 113, L_replay, LINK_IDS, 6, false},      {114, 119, L_recovery, LINK_IDS, 6, false},
    {148, 159, L_ecc_data, LINK_IDS, 0, false},    {160, 160, L_ecc_data, TOTAL_ID, 0, false},
    {161, 161, L_replay, BY_SCOPE, 0, false},      {162, 162, L_recovery, BY_SCOPE, 0, false},
    {163, 163, L_crc_flit, BY_SCOPE, 0, false},    {206, 206, L_malformed, BY_SCOPE, 0, true},
    {207, 207, L_buffer_overrun, BY_SCOPE, 0, true}, {208, 208, L_rcv_errors, BY_SCOPE, 0, true},
    {209, 209, L_remote_errors, BY_SCOPE, 0, true}, {210, 210, L_general_errors, BY_SCOPE, 0, true},
    {211, 211, L_integrity_errors, BY_SCOPE, 0, true}, {212, 212, L_xmit_discards, BY_SCOPE, 0, true},
    {213, 213, L_recovery_ok, BY_SCOPE, 0, true},  {214, 214, L_recovery_failed, BY_SCOPE, 0, true},
    {215, 215, L_recovery_events, BY_SCOPE, 0, true}, {219, 219, L_effective_errors, BY_SCOPE, 0, true},
    {220, 220, L_effective_ber, BY_SCOPE, 0, true}, {221, 221, L_symbol_errors, BY_SCOPE, 0, true},
    {222, 222, L_symbol_ber, BY_SCOPE, 0, true},
};

static const struct link_row *link_row_for(unsigned id) {
    for (size_t i = 0; i < sizeof link_rows / sizeof *link_rows; i++)
        if (id >= link_rows[i].first && id <= link_rows[i].last) return &link_rows[i];
    return NULL;
}

static double sum_of(const struct gpu *g, enum link_field field) {
    double sum = 0;
    for (unsigned link = 0; link < g->model->nvlinks; link++) sum += g->link[link][field];
    return sum;
}

static nvmlReturn_t link_count(const struct call *c, const struct link_row *row, const nvmlFieldValue_t *v, double *out) {
    bool is_nvlink5 = c->gpu->model->nvlink_version >= NVLINK_5_0;
    unsigned link = row->how == BY_SCOPE ? v->scopeId : row->link + v->fieldId - row->first;
    nvmlReturn_t result = override_of(c->data, F_nvlink_errors);
    if (result != NVML_SUCCESS) return result;
    if (c->mig != NULL || c->gpu->model->nvlinks == 0 || is_nvlink5 != row->nvlink5) return NVML_ERROR_NOT_SUPPORTED;
    bool whole = row->how == TOTAL_ID || (row->how == BY_SCOPE && v->scopeId == ~0u);
    bool absent = !whole && link >= c->gpu->model->nvlinks;
    if (absent) return row->how == BY_SCOPE ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
    if (!whole) result = link_refusal(c->gpu, link, L_count_error);
    *out = whole ? sum_of(c->gpu, row->field) : c->gpu->link[link][row->field];
    return result;
}

/* Traffic flows over the links that are up, in equal parts; scopeId is a link or all ones for the whole GPU. */
static nvmlReturn_t link_traffic(const struct call *c, enum field field, unsigned link, double *out) {
    double up = sum_of(c->gpu, L_up);
    if (c->mig != NULL || c->gpu->model->nvlinks == 0) return NVML_ERROR_NOT_SUPPORTED;
    if (link != ~0u && link >= c->gpu->model->nvlinks) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = value_of(c, field, out);
    if (result == NVML_SUCCESS && link != ~0u) *out = up > 0 && c->gpu->link[link][L_up] != 0 ? *out / up : 0;
    return result;
}

enum { SPEED_L0 = 84, SPEED_L5 = 89, SPEED_COMMON = 90, LINK_COUNT = 91, SPEED_L6 = 132, SPEED_L11 = 137 };
enum { DATA_TX = 138, DATA_RX = 139, RAW_TX = 140, RAW_RX = 141, SWITCH_LINKS = 147 };
enum { SPEED_BY_SCOPE = 164, STATE_BY_SCOPE = 165, VERSION_BY_SCOPE = 166 };
enum { XMIT_PACKETS = 201, XMIT_BYTES = 202, RCV_PACKETS = 203, RCV_BYTES = 204 };
enum { PACKET_BYTES = 144 };

static double link_mbps(const struct gpu *g) {
    return g->model->nvlink_version >= NVLINK_5_0 ? 53125 : g->model->nvlink_version >= NVLINK_4_0 ? 26562 : 25000;
}

static nvmlReturn_t link_speed(const struct call *c, unsigned link, double *out) {
    if (link >= c->gpu->model->nvlinks) return NVML_ERROR_NOT_SUPPORTED;
    *out = c->gpu->link[link][L_up] != 0 ? link_mbps(c->gpu) : 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t link_fact(const struct call *c, const nvmlFieldValue_t *v, double *out) {
    const struct gpu *g = c->gpu;
    unsigned id = v->fieldId;
    nvmlReturn_t result = override_of(c->data, F_nvlink_state);
    if (result != NVML_SUCCESS) return result;
    if (c->mig != NULL || g->model->nvlinks == 0) return NVML_ERROR_NOT_SUPPORTED;
    if (id >= SPEED_L0 && id <= SPEED_L5) return link_speed(c, id - SPEED_L0, out);
    if (id >= SPEED_L6 && id <= SPEED_L11) return link_speed(c, id - SPEED_L6 + 6, out);
    *out = g->model->nvlinks;
    if (id == LINK_COUNT || id == SWITCH_LINKS) return NVML_SUCCESS;
    *out = link_mbps(g);
    if (id == SPEED_COMMON) return NVML_SUCCESS;
    if (v->scopeId >= g->model->nvlinks) return NVML_ERROR_INVALID_ARGUMENT;
    if (id == SPEED_BY_SCOPE) return link_speed(c, v->scopeId, out);
    *out = id == STATE_BY_SCOPE ? g->link[v->scopeId][L_up] != 0 : g->model->nvlink_version;
    return NVML_SUCCESS;
}

static bool is_link_fact(unsigned id) {
    return (id >= SPEED_L0 && id <= LINK_COUNT) || (id >= SPEED_L6 && id <= SPEED_L11) || id == SWITCH_LINKS ||
           (id >= SPEED_BY_SCOPE && id <= VERSION_BY_SCOPE);
}

static nvmlReturn_t traffic(const struct call *c, const nvmlFieldValue_t *v, double *out) {
    bool is_nvlink5 = v->fieldId >= XMIT_PACKETS;
    bool sent = v->fieldId == DATA_TX || v->fieldId == RAW_TX || v->fieldId == XMIT_PACKETS || v->fieldId == XMIT_BYTES;
    if (is_nvlink5 != (c->gpu->model->nvlink_version >= NVLINK_5_0)) return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t result = link_traffic(c, sent ? F_nvlink_tx_total : F_nvlink_rx_total, v->scopeId, out);
    if (v->fieldId == RAW_TX || v->fieldId == RAW_RX) *out *= 1.125; /* with headers */
    if (is_nvlink5) *out *= 1024;
    if (v->fieldId == XMIT_PACKETS || v->fieldId == RCV_PACKETS) *out /= PACKET_BYTES;
    return result;
}

static bool is_traffic(unsigned id) { return (id >= DATA_TX && id <= RAW_RX) || (id >= XMIT_PACKETS && id <= RCV_BYTES); }

/* ---- the call ---- */

static enum field gate_of(unsigned id) {
    const struct row *row = row_for(id);
    if (row != NULL) return row->field;
    return is_traffic(id) ? F_nvlink_throughput : is_link_fact(id) ? F_nvlink_state : link_row_for(id) ? F_nvlink_errors : F_fields;
}

static nvmlReturn_t number_for(const struct call *c, nvmlFieldValue_t *v, double *out) {
    const struct row *row = row_for(v->fieldId);
    const struct link_row *link_row = row == NULL ? link_row_for(v->fieldId) : NULL;
    v->valueType = row != NULL ? row->type : is_link_fact(v->fieldId) ? U32 : U64;
    if (row != NULL) {
        nvmlReturn_t result = value_of(c, row->field, out);
        *out *= row->scale;
        return result;
    }
    if (link_row != NULL) return link_count(c, link_row, v, out);
    if (is_traffic(v->fieldId)) return traffic(c, v, out);
    if (is_link_fact(v->fieldId)) return link_fact(c, v, out);
    return v->fieldId == 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
}

static void store(nvmlFieldValue_t *v, double number) {
    v->value.ullVal = 0;
    if (v->valueType == S32) v->value.siVal = (int)floor(number + 0.5);
    else if (v->fieldId == 197 || v->fieldId == 198) v->value.uiVal = (unsigned)to_u64(number); /* these wrap */
    else if (v->valueType == U32) v->value.uiVal = to_u32(number);
    else v->value.ullVal = to_u64(number);
}

static void fill(const struct call *c, nvmlFieldValue_t *v) {
    double number = 0;
    v->timestamp = epoch_us();
    v->latencyUsec = 1;
    v->nvmlReturn = number_for(c, v, &number);
    store(v, number);
}

/* One field that hangs makes the whole call hang, so the wait comes before any answer. */
static nvmlReturn_t begin(struct call *c, nvmlDevice_t device, int count, const nvmlFieldValue_t *values) {
    for (;;) {
        nvmlReturn_t result = call_begin(c, device, F_fields);
        bool hangs = false;
        if (result != NVML_SUCCESS) return result;
        for (int i = 0; i < count && !hangs; i++) hangs = unit_hangs(c->data, gate_of(values[i].fieldId));
        if (!hangs) return NVML_SUCCESS;
        call_end();
        sleep_ms(20);
    }
}

NVML_API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    struct call c;
    if (count <= 0 || values == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = begin(&c, device, count, values);
    if (result != NVML_SUCCESS) return result;
    for (int i = 0; i < count; i++) fill(&c, &values[i]);
    call_end();
    return NVML_SUCCESS;
}
