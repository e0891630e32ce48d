/* MIG mode and the devices a GPU is cut into. */
#include "fake.h"

NVML_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending) {
    nvmlReturn_t result = read_u32(device, F_mig_mode, 1, now);
    return result == NVML_SUCCESS ? read_u32(device, F_mig_mode_pending, 1, pending) : result;
}

static nvmlReturn_t mig_number(nvmlDevice_t device, size_t offset, unsigned *out) {
    struct call c;
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, device, F_mig_mode);
    if (result != NVML_SUCCESS) return result;
    if (c.mig == NULL) result = NVML_ERROR_NOT_SUPPORTED;
    else *out = *(const unsigned *)(const void *)((const char *)c.mig + offset);
    call_end();
    return result;
}
NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    return mig_number(device, offsetof(struct mig_device, gi), id);
}
NVML_API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    return mig_number(device, offsetof(struct mig_device, ci), id);
}

NVML_API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
    unsigned unit;
    if (is_mig == NULL || !unit_of_handle(device, &unit)) return NVML_ERROR_INVALID_ARGUMENT;
    *is_mig = unit_is_mig(unit);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    struct call c;
    if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin_gpu(&c, device, F_mig_mode);
    if (result != NVML_SUCCESS) return result;
    *count = c.gpu->model->mig ? 7 : 0;
    call_end();
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
    struct call c;
    if (mig == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin_gpu(&c, device, F_handle);
    if (result != NVML_SUCCESS) return result;
    if (index >= MAX_MIG) result = NVML_ERROR_INVALID_ARGUMENT;
    else if (index >= c.gpu->mig_count) result = NVML_ERROR_NOT_FOUND;
    else *mig = handle_of(mig_unit(c.unit, index));
    call_end();
    return result;
}

NVML_API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    unsigned unit;
    if (device == NULL || !unit_of_handle(mig, &unit) || !unit_is_mig(unit)) return NVML_ERROR_INVALID_ARGUMENT;
    *device = handle_of(gpu_unit(unit_gpu(unit)));
    return NVML_SUCCESS;
}

/* Seven slices make a GPU; memory comes in eighths, processors in the way NVIDIA's profiles cut them. */
NVML_API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    static const unsigned processors[] = {0, 16, 32, 60, 64, 64, 64};
    struct call c;
    if (attributes == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = call_begin(&c, device, F_attributes);
    if (result != NVML_SUCCESS) return result;
    if (c.mig == NULL) {
        call_end();
        return NVML_ERROR_NOT_SUPPORTED;
    }
    unsigned slices = c.mig->slices;
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = slices < 7 ? processors[slices] : c.gpu->model->sm_count,
        .sharedCopyEngineCount = slices,
        .sharedDecoderCount = slices,
        .sharedJpegCount = slices,
        .gpuInstanceSliceCount = slices,
        .computeInstanceSliceCount = slices,
        .memorySizeMB = to_u64(c.mig->unit.value[F_fb_total] / 1048576),
    };
    call_end();
    return NVML_SUCCESS;
}
NVML_API nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    return nvmlDeviceGetAttributes_v2(device, attributes);
}
