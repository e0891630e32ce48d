/* What a GPU is and what its sensors say. */
#include <stdio.h>
#include <string.h>

#include "fake.h"

/* ---- identity ---- */

static nvmlReturn_t read_text(nvmlDevice_t device, enum field gate, size_t offset, char *out, unsigned length) {
    struct call c;
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin_gpu(&c, device, gate);
    if (result != NVML_SUCCESS) return result;
    result = copy_text((const char *)c.gpu + offset, out, length);
    call_end();
    return result;
}

#define TEXT_GETTER(function, gate, member) \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned int length) { \
        return read_text(device, gate, offsetof(struct gpu, member), out, length); \
    }
TEXT_GETTER(nvmlDeviceGetSerial, F_serial, serial)
TEXT_GETTER(nvmlDeviceGetVbiosVersion, F_vbios, vbios)
TEXT_GETTER(nvmlDeviceGetBoardPartNumber, F_part_number, part_number)

NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    struct call c;
    char full[160];
    if (name == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, device, F_name);
    if (result != NVML_SUCCESS) return result;
    snprintf(full, sizeof full, c.mig == NULL ? "%s" : "%s MIG %s", c.gpu->name, c.mig == NULL ? "" : c.mig->profile);
    call_end();
    return copy_text(full, name, length);
}

NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    struct call c;
    if (uuid == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, device, F_uuid);
    if (result != NVML_SUCCESS) return result;
    result = copy_text(c.mig == NULL ? c.gpu->uuid : c.mig->uuid, uuid, length);
    call_end();
    return result;
}

NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    struct call c;
    if (index == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, device, F_index);
    if (result != NVML_SUCCESS) return result;
    if (c.mig != NULL) *index = (unsigned)(c.mig - c.gpu->mig);
    else for (*index = 0; *index < c.scenario->order_count && c.scenario->order[*index] != c.unit;) ++*index;
    result = c.mig == NULL && *index == c.scenario->order_count ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
    call_end();
    return result;
}

static nvmlReturn_t pci_info(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    struct call c;
    if (pci == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin_gpu(&c, device, F_pci);
    if (result != NVML_SUCCESS) return result;
    const struct gpu *g = c.gpu;
    *pci = (nvmlPciInfo_t){.domain = g->domain, .bus = g->bus, .device = g->device, .pciDeviceId = g->model->pci_device_id,
                           .pciSubSystemId = 0x16C110DE};
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", g->domain, g->bus, g->device);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", g->domain & 0xffffu, g->bus & 0xffu,
             g->device & 0xffu);
    call_end();
    return NVML_SUCCESS;
}
NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) { return pci_info(device, pci); }

/* The two older calls share a shorter layout: it ends before the long address. */
static nvmlReturn_t pci_info_old(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    nvmlPciInfo_t full;
    nvmlReturn_t result = pci == NULL ? NVML_ERROR_INVALID_ARGUMENT : pci_info(device, &full);
    if (result == NVML_SUCCESS) memcpy(pci, &full, offsetof(nvmlPciInfo_t, busId));
    return result;
}
NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) { return pci_info_old(device, pci); }
NVML_API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) { return pci_info_old(device, pci); }

NVML_API nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci) {
    nvmlPciInfo_t info;
    if (pci == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (pci->version != STRUCT_VERSION(sizeof *pci, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = pci_info(device, &info);
    if (result != NVML_SUCCESS) return result;
    *pci = (nvmlPciInfoExt_t){.version = pci->version, .domain = info.domain, .bus = info.bus, .device = info.device,
                              .pciDeviceId = info.pciDeviceId, .pciSubSystemId = info.pciSubSystemId,
                              .baseClass = 3, .subClass = 2};
    memcpy(pci->busId, info.busId, sizeof pci->busId);
    return NVML_SUCCESS;
}

/* Facts of the model that are one number each. */
#define MODEL_GETTER(function, gate, type, expression) \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, type *out) { \
        struct call c; \
        if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT; \
        nvmlReturn_t result = call_begin(&c, device, gate); \
        if (result != NVML_SUCCESS) return result; \
        *out = (type)(expression); \
        call_end(); \
        return NVML_SUCCESS; \
    }
MODEL_GETTER(nvmlDeviceGetArchitecture, F_architecture, nvmlDeviceArchitecture_t, c.gpu->model->architecture)
MODEL_GETTER(nvmlDeviceGetBrand, F_brand, nvmlBrandType_t, strstr(c.gpu->name, "Tesla") ? NVML_BRAND_TESLA : NVML_BRAND_NVIDIA)
MODEL_GETTER(nvmlDeviceGetNumGpuCores, F_architecture, unsigned int, c.gpu->model->cores)
MODEL_GETTER(nvmlDeviceGetMemoryBusWidth, F_architecture, unsigned int, c.gpu->model->nvlinks ? 5120 : 384)
MODEL_GETTER(nvmlDeviceGetBusType, F_pci, nvmlBusType_t, 2)
MODEL_GETTER(nvmlDeviceGetModuleId, F_index, unsigned int, unit_gpu(c.unit) % 8 + 1)
MODEL_GETTER(nvmlDeviceGetBoardId, F_pci, unsigned int, c.gpu->domain << 16 | c.gpu->bus << 8)
MODEL_GETTER(nvmlDeviceGetMultiGpuBoard, F_index, unsigned int, 0)

NVML_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    struct call c;
    if (major == NULL || minor == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, device, F_cuda_capability);
    if (result != NVML_SUCCESS) return result;
    *major = (int)c.gpu->model->capability_major;
    *minor = (int)c.gpu->model->capability_minor;
    call_end();
    return NVML_SUCCESS;
}

/* ---- one number, one call ---- */

#define NUMBER_GETTERS(GETTER) \
    GETTER(nvmlDeviceGetMinorNumber, unsigned int, minor, 1) \
    GETTER(nvmlDeviceGetPowerUsage, unsigned int, power, 1000) \
    GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, power_limit, 1000) \
    GETTER(nvmlDeviceGetPowerManagementLimit, unsigned int, power_limit_requested, 1000) \
    GETTER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, power_limit_default, 1000) \
    GETTER(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, power_management, 1) \
    GETTER(nvmlDeviceGetPerformanceState, nvmlPstates_t, pstate, 1) \
    GETTER(nvmlDeviceGetPowerState, nvmlPstates_t, pstate, 1) \
    GETTER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, persistence, 1) \
    GETTER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, compute_mode, 1) \
    GETTER(nvmlDeviceGetDisplayMode, nvmlEnableState_t, display, 1) \
    GETTER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, display, 1) \
    GETTER(nvmlDeviceGetFanSpeed, unsigned int, fan, 1) \
    GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, pcie_gen, 1) \
    GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, pcie_width, 1) \
    GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, pcie_gen_max, 1) \
    GETTER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, pcie_gen_max, 1) \
    GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, pcie_width_max, 1) \
    GETTER(nvmlDeviceGetPcieReplayCounter, unsigned int, pcie_replays, 1) \
    GETTER(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t, retired_pending, 1)

#define NUMBER_GETTER(function, type, field, scale) \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, type *out) { \
        return read_u32(device, F_##field, scale, (unsigned int *)(void *)out); \
    }
NUMBER_GETTERS(NUMBER_GETTER)

NVML_API nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy) {
    return read_u64(device, F_energy, energy);
}

/* ---- two numbers, one call ---- */

/* Reads both or neither; the group's name is the gate. */
static nvmlReturn_t read_pair(nvmlDevice_t device, enum field gate, enum field first, enum field second, double scale,
                              unsigned *a, unsigned *b) {
    struct call c;
    double x = 0, y = 0;
    if (a == NULL || b == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, device, gate);
    if (result != NVML_SUCCESS) return result;
    result = value_of(&c, first, &x);
    if (result == NVML_SUCCESS) result = value_of(&c, second, &y);
    call_end();
    if (result != NVML_SUCCESS) return result;
    *a = to_u32(x * scale);
    *b = to_u32(y * scale);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    if (rates == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    return read_pair(device, F_utilization, F_util, F_mem_util, 1, &rates->gpu, &rates->memory);
}
NVML_API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least, unsigned int *most) {
    return read_pair(device, F_power_limits, F_power_limit_min, F_power_limit_max, 1000, least, most);
}
NVML_API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current_mode, nvmlEnableState_t *pending) {
    return read_pair(device, F_ecc_mode, F_ecc_mode, F_ecc_mode_pending, 1, (unsigned *)(void *)current_mode,
                     (unsigned *)(void *)pending);
}

static nvmlReturn_t codec(nvmlDevice_t device, enum field field, unsigned *utilization, unsigned *period_us) {
    if (period_us == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *period_us = 167000;
    return read_u32(device, field, 1, utilization);
}
NVML_API nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *period) {
    return codec(device, F_encoder_util, utilization, period);
}
NVML_API nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *period) {
    return codec(device, F_decoder_util, utilization, period);
}

/* ---- memory ---- */

struct bytes {
    double total, used, reserved;
};

static nvmlReturn_t read_bytes(nvmlDevice_t device, enum field gate, enum field total, enum field used, struct bytes *out) {
    struct call c;
    nvmlReturn_t result = call_begin(&c, device, gate);
    if (result != NVML_SUCCESS) return result;
    result = value_of(&c, total, &out->total);
    if (result == NVML_SUCCESS) result = value_of(&c, used, &out->used);
    out->reserved = 0;
    if (result == NVML_SUCCESS && gate == F_memory) result = value_of(&c, F_fb_reserved, &out->reserved);
    call_end();
    return result;
}

/* The older call counts what the driver keeps for itself as used; the newer one lists it apart. */
NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    struct bytes b;
    nvmlReturn_t result = memory == NULL ? NVML_ERROR_INVALID_ARGUMENT : read_bytes(device, F_memory, F_fb_total, F_fb_used, &b);
    if (result != NVML_SUCCESS) return result;
    memory->total = to_u64(b.total);
    memory->used = to_u64(b.used + b.reserved);
    memory->free = to_u64(b.total - b.used - b.reserved);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    struct bytes b;
    if (memory == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != STRUCT_VERSION(sizeof *memory, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = read_bytes(device, F_memory, F_fb_total, F_fb_used, &b);
    if (result != NVML_SUCCESS) return result;
    memory->total = to_u64(b.total);
    memory->reserved = to_u64(b.reserved);
    memory->used = to_u64(b.used);
    memory->free = to_u64(b.total - b.used - b.reserved);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    struct bytes b;
    nvmlReturn_t result = memory == NULL ? NVML_ERROR_INVALID_ARGUMENT : read_bytes(device, F_bar1, F_bar1_total, F_bar1_used, &b);
    if (result != NVML_SUCCESS) return result;
    *memory = (nvmlBAR1Memory_t){.bar1Total = to_u64(b.total), .bar1Used = to_u64(b.used), .bar1Free = to_u64(b.total - b.used)};
    return NVML_SUCCESS;
}

/* ---- temperature ---- */

static nvmlReturn_t read_int(nvmlDevice_t device, enum field field, int *out) {
    struct call c;
    double value = 0;
    nvmlReturn_t result = call_begin(&c, device, field);
    if (result != NVML_SUCCESS) return result;
    result = value_of(&c, field, &value);
    call_end();
    if (result == NVML_SUCCESS) *out = (int)floor(value + 0.5);
    return result;
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *temp) {
    if (sensor != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    return read_u32(device, F_temp, 1, temp);
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    if (temperature == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (temperature->version != STRUCT_VERSION(sizeof *temperature, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (temperature->sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    return read_int(device, F_temp, &temperature->temperature);
}

NVML_API nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *margin) {
    if (margin == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (margin->version != STRUCT_VERSION(sizeof *margin, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return read_int(device, F_temp_margin, &margin->marginTemperature);
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t type, unsigned int *temp) {
    static const enum field fields[] = {F_temp_shutdown, F_temp_slowdown, F_temp_mem_max, F_temp_gpu_max};
    if (type >= NVML_TEMPERATURE_THRESHOLD_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    return (size_t)type < sizeof fields / sizeof *fields ? read_u32(device, fields[type], 1, temp) : NVML_ERROR_NOT_SUPPORTED;
}

/* ---- clocks ---- */

static const enum field clock_now[] = {F_graphics_clock, F_sm_clock, F_mem_clock, F_video_clock};
static const enum field clock_max[] = {F_graphics_clock_max, F_sm_clock_max, F_mem_clock_max, F_video_clock_max};
static const enum field clock_app[] = {F_app_graphics_clock, F_app_sm_clock, F_app_mem_clock, F_all};

static nvmlReturn_t read_clock(nvmlDevice_t device, const enum field *fields, nvmlClockType_t type, unsigned *mhz) {
    if (type >= NVML_CLOCK_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    return fields[type] == F_all ? NVML_ERROR_NOT_SUPPORTED : read_u32(device, fields[type], 1, mhz);
}

NVML_API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    return read_clock(device, clock_now, type, mhz);
}
NVML_API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    return read_clock(device, clock_max, type, mhz);
}
NVML_API nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    return read_clock(device, clock_app, type, mhz);
}
NVML_API nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    return read_clock(device, clock_app, type, mhz);
}
NVML_API nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    return read_clock(device, clock_max, type, mhz);
}
NVML_API nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id, unsigned int *mhz) {
    static const enum field *const by_id[] = {clock_now, clock_app, clock_app, clock_max};
    return id >= NVML_CLOCK_ID_COUNT ? NVML_ERROR_INVALID_ARGUMENT : read_clock(device, by_id[id], type, mhz);
}

/* ---- fans: boards without one have none to count ---- */

NVML_API nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *fans) {
    nvmlReturn_t result = read_u32(device, F_fan, 0, fans);
    if (result == NVML_SUCCESS) *fans = 1;
    if (result != NVML_ERROR_NOT_SUPPORTED || fans == NULL) return result;
    *fans = 0;
    return NVML_SUCCESS;
}
NVML_API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *speed) {
    return fan == 0 ? read_u32(device, F_fan, 1, speed) : NVML_ERROR_INVALID_ARGUMENT;
}
