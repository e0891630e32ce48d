/* Errors a GPU counts and the reasons why its clocks are low. */
#include "fake.h"

/* ---- ECC ---- */

NVML_API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t error, nvmlEccCounterType_t span,
                                                  unsigned long long *count) {
    static const enum field fields[2][2] = {{F_ecc_corrected_volatile, F_ecc_corrected_aggregate},
                                            {F_ecc_uncorrected_volatile, F_ecc_uncorrected_aggregate}};
    if (error > 1 || span > 1) return NVML_ERROR_INVALID_ARGUMENT;
    return read_u64(device, fields[error][span], count);
}

/* Every error of a scenario sits in device memory; the other places count none. */
NVML_API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t error, nvmlEccCounterType_t span,
                                                      nvmlMemoryLocation_t place, unsigned long long *count) {
    if (place >= NVML_MEMORY_LOCATION_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = nvmlDeviceGetTotalEccErrors(device, error, span, count);
    if (result == NVML_SUCCESS && place != NVML_MEMORY_LOCATION_DRAM) *count = 0;
    return result;
}

/* ---- rows and pages ---- */

NVML_API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                                unsigned int *pending, unsigned int *failed) {
    unsigned *out[] = {corrected, uncorrected, pending, failed};
    struct call c;
    double value = 0;
    for (int i = 0; i < 4; i++)
        if (out[i] == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin_gpu(&c, device, F_remapped_rows);
    if (result != NVML_SUCCESS) return result;
    for (int i = 0; i < 4 && result == NVML_SUCCESS; i++) {
        result = value_of(&c, (enum field)(F_remapped_rows_correctable + i), &value);
        *out[i] = to_u32(value);
    }
    call_end();
    return result;
}

NVML_API nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *values) {
    struct call c;
    double used = 0;
    if (values == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin_gpu(&c, device, F_remapped_rows);
    if (result != NVML_SUCCESS) return result;
    result = value_of(&c, F_remapped_rows_uncorrectable, &used);
    call_end();
    unsigned banks = to_u32(used);
    *values = (nvmlRowRemapperHistogramValues_t){.max = banks > 2560 ? 0 : 2560 - banks, .high = banks};
    return result;
}

/* One made-up page per count, so that lists are as long as the scenario says. */
static nvmlReturn_t retired(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned *count, unsigned long long *pages,
                            unsigned long long *times) {
    unsigned pages_now = 0;
    if (cause > 1 || count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = read_u32(device, cause == 0 ? F_retired_pages_sbe : F_retired_pages_dbe, 1, &pages_now);
    if (result != NVML_SUCCESS) return result;
    unsigned room = *count;
    *count = pages_now;
    if (pages_now > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (pages_now > 0 && pages == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < pages_now; i++) {
        pages[i] = 0x1000ull * (i + 1) + (cause == 0 ? 0 : 0x80000000ull);
        if (times != NULL) times[i] = 1700000000000000ull;
    }
    return NVML_SUCCESS;
}
NVML_API nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
                                                unsigned long long *pages) {
    return retired(device, cause, count, pages, NULL);
}
NVML_API nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
                                                   unsigned long long *pages, unsigned long long *times) {
    return retired(device, cause, count, pages, times);
}

/* ---- why clocks are low ---- */

NVML_API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return read_u64(device, F_clock_event_reasons, reasons);
}
NVML_API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return read_u64(device, F_clock_event_reasons, reasons);
}
NVML_API nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return read_u64(device, F_supported_clock_event_reasons, reasons);
}
NVML_API nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return read_u64(device, F_supported_clock_event_reasons, reasons);
}

NVML_API nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *out) {
    static const enum field fields[NVML_PERF_POLICY_COUNT] = {
        [0] = F_violation_power,        [1] = F_violation_thermal,     [2] = F_violation_sync_boost,
        [3] = F_violation_board_limit,  [4] = F_violation_low_utilization, [5] = F_violation_reliability,
        [10] = F_violation_app_clocks,  [11] = F_violation_base_clocks,
    };
    if (out == NULL || policy >= NVML_PERF_POLICY_COUNT || fields[policy] == F_all) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = read_u64(device, fields[policy], &out->violationTime);
    out->referenceTime = (unsigned long long)epoch_us();
    return result;
}
