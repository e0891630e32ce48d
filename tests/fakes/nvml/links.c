/* PCIe, NVLink and the NVLink fabric. */
#include <stdio.h>
#include <string.h>

#include "fake.h"

/* KiB per second, over the driver's own short window. */
NVML_API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *value) {
    if (counter > NVML_PCIE_UTIL_RX_BYTES) return NVML_ERROR_INVALID_ARGUMENT;
    return read_u32(device, counter == NVML_PCIE_UTIL_TX_BYTES ? F_pcie_tx : F_pcie_rx, 1024, value);
}

static unsigned lane_mbps(unsigned gen) {
    static const unsigned speed[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
    return gen < sizeof speed / sizeof *speed ? speed[gen] : 0;
}

NVML_API nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned int *mbps) {
    nvmlReturn_t result = read_u32(device, F_pcie_gen, 1, mbps);
    if (result == NVML_SUCCESS) *mbps = lane_mbps(*mbps);
    return result;
}
NVML_API nvmlReturn_t nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t device, unsigned int *speed) {
    return read_u32(device, F_pcie_gen_max, 1, speed);
}

/* ---- NVLink ---- */

/* Passes for links the board has; beyond them the answer is NOT_SUPPORTED, beyond NVML's own limit INVALID_ARGUMENT. */
static nvmlReturn_t link_begin(struct call *c, nvmlDevice_t device, unsigned link, enum field gate) {
    nvmlReturn_t result = call_begin_gpu(c, device, gate);
    if (result != NVML_SUCCESS) return result;
    bool there = link < c->gpu->model->nvlinks;
    if (there) result = link_refusal(c->gpu, link, gate == F_nvlink_errors ? L_count_error : L_state_error);
    if (there && result == NVML_SUCCESS) return result;
    call_end();
    if (there) return result;
    return link >= UNLINKED ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
}

#define LINK_GETTER(function, type, gate, expression) \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, unsigned int link, type *out) { \
        struct call c; \
        if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT; \
        nvmlReturn_t result = link_begin(&c, device, link, gate); \
        if (result != NVML_SUCCESS) return result; \
        *out = (type)(expression); \
        call_end(); \
        return NVML_SUCCESS; \
    }
LINK_GETTER(nvmlDeviceGetNvLinkState, nvmlEnableState_t, F_nvlink_state, c.gpu->link[link][L_up] != 0)
LINK_GETTER(nvmlDeviceGetNvLinkVersion, unsigned int, F_nvlink_state, c.gpu->model->nvlink_version)
LINK_GETTER(nvmlDeviceGetNvLinkRemoteDeviceType, nvmlIntNvLinkDeviceType_t, F_nvlink_state, NVML_NVLINK_DEVICE_TYPE_SWITCH)

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, nvmlNvLinkCapability_t capability,
                                                    unsigned int *out) {
    struct call c;
    if (out == NULL || capability >= NVML_NVLINK_CAP_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = link_begin(&c, device, link, F_nvlink_state);
    if (result != NVML_SUCCESS) return result;
    call_end();
    *out = capability != 4; /* all but an SLI bridge */
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter,
                                                      unsigned long long *count) {
    static const enum link_field fields[] = {L_replay, L_recovery, L_crc_flit, L_crc_data, L_ecc_data};
    struct call c;
    if (count == NULL || counter >= NVML_NVLINK_ERROR_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = link_begin(&c, device, link, F_nvlink_errors);
    if (result != NVML_SUCCESS) return result;
    if (c.gpu->model->nvlink_version >= NVLINK_5_0) result = NVML_ERROR_NOT_SUPPORTED;
    else *count = to_u64(c.gpu->link[link][fields[counter]]);
    call_end();
    return result;
}

/* The links spread over the four NVSwitches of a board. */
NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
    struct call c;
    if (pci == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = link_begin(&c, device, link, F_nvlink_state);
    if (result != NVML_SUCCESS) return result;
    if (c.gpu->link[link][L_up] == 0) result = NVML_ERROR_NOT_SUPPORTED;
    call_end();
    *pci = (nvmlPciInfo_t){.bus = 7 + link % 4, .pciDeviceId = 0x22A310DE};
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus & 0xffu);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus & 0xffu);
    return result;
}
NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
    nvmlPciInfo_t full;
    nvmlReturn_t result = nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &full);
    if (result == NVML_SUCCESS && pci != NULL) memcpy(pci, &full, offsetof(nvmlPciInfo_t, busId));
    return result;
}

/* ---- fabric ---- */

static nvmlReturn_t fabric(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out) {
    struct call c;
    double state = 0, status = 0, mask = 0;
    nvmlReturn_t result = call_begin_gpu(&c, device, F_fabric);
    if (result != NVML_SUCCESS) return result;
    result = value_of(&c, F_fabric_state, &state);
    if (result == NVML_SUCCESS) result = value_of(&c, F_fabric_status, &status);
    if (result == NVML_SUCCESS) result = value_of(&c, F_fabric_health_mask, &mask);
    uint64_t cluster = hash_text(c.scenario->seed, 6);
    call_end();
    if (result != NVML_SUCCESS) return result;
    memset(out->clusterUuid, 0, sizeof out->clusterUuid);
    if (state == 3) memcpy(out->clusterUuid, &cluster, sizeof cluster);
    out->status = (nvmlReturn_t)status;
    out->cliqueId = 0;
    out->state = (unsigned char)state;
    out->healthMask = to_u32(mask);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    nvmlGpuFabricInfoV_t full;
    nvmlReturn_t result = info == NULL ? NVML_ERROR_INVALID_ARGUMENT : fabric(device, &full);
    if (result != NVML_SUCCESS) return result;
    *info = (nvmlGpuFabricInfo_t){.status = full.status, .cliqueId = full.cliqueId, .state = full.state};
    memcpy(info->clusterUuid, full.clusterUuid, sizeof info->clusterUuid);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
    nvmlGpuFabricInfoV_t full;
    if (info == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    size_t size = info->version == STRUCT_VERSION(sizeof full, 3) ? sizeof full
                  : info->version == STRUCT_VERSION(36, 2)        ? 36
                                                                  : 0;
    if (size == 0) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memset(&full, 0, sizeof full);
    full.version = info->version;
    full.healthSummary = 1;
    nvmlReturn_t result = fabric(device, &full);
    if (result == NVML_SUCCESS) memcpy(info, &full, size);
    return result;
}
