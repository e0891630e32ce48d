/* Calls about the node and calls that find a device. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "fake.h"

static const struct {
    nvmlReturn_t code;
    const char *text;
} errors[] = {
    {NVML_SUCCESS, "Success"},
    {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
    {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
    {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
    {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
    {(nvmlReturn_t)5, "Already Initialized"},
    {NVML_ERROR_NOT_FOUND, "Not Found"},
    {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
    {(nvmlReturn_t)8, "Insufficient External Power"},
    {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
    {NVML_ERROR_TIMEOUT, "Timeout"},
    {(nvmlReturn_t)11, "Interrupt Request Issue"},
    {(nvmlReturn_t)12, "NVML Shared Library Not Found"},
    {(nvmlReturn_t)13, "Function Not Found"},
    {(nvmlReturn_t)14, "Corrupted infoROM"},
    {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
    {(nvmlReturn_t)16, "GPU requires reset"},
    {(nvmlReturn_t)17, "GPU access blocked by the operating system"},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
    {(nvmlReturn_t)19, "In use by another client"},
    {NVML_ERROR_MEMORY, "Insufficient Memory"},
    {NVML_ERROR_NO_DATA, "No data"},
    {NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient resources"},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
};

#ifdef HEELER_REAL_NVML_H
NVML_API const char *nvmlErrorString(nvmlReturn_t result);
#endif
NVML_API const char *nvmlErrorString(nvmlReturn_t result) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == result) return errors[i].text;
    return "Unknown Error";
}

static nvmlReturn_t system_begin(const struct scenario **s) {
    lock();
    refresh();
    *s = current();
    if (initialized()) return NVML_SUCCESS;
    unlock();
    return NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t system_text(size_t offset, char *out, unsigned length) {
    const struct scenario *s;
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = system_begin(&s);
    if (result != NVML_SUCCESS) return result;
    result = copy_text((const char *)s + offset, out, length);
    unlock();
    return result;
}

NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    return system_text(offsetof(struct scenario, driver), version, length);
}
NVML_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    return system_text(offsetof(struct scenario, nvml_version), version, length);
}
NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    const struct scenario *s;
    if (version == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = system_begin(&s);
    if (result != NVML_SUCCESS) return result;
    *version = s->cuda;
    unlock();
    return NVML_SUCCESS;
}
NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

static nvmlReturn_t device_count(unsigned *count) {
    const struct scenario *s;
    if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = system_begin(&s);
    while (result == NVML_SUCCESS && s->hang_count) {
        unlock();
        sleep_ms(20);
        result = system_begin(&s);
    }
    if (result != NVML_SUCCESS) return result;
    *count = s->order_count;
    unlock();
    return NVML_SUCCESS;
}
NVML_API nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return device_count(count); }
NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) { return device_count(count); }

/* ---- handles ---- */

/* `matches` sees GPUs first and then MIG devices, in index order, with the lock held. */
typedef bool matcher(const struct scenario *s, unsigned unit, const void *wanted);

static bool find_unit(const struct scenario *s, matcher *matches, const void *wanted, unsigned *unit) {
    for (unsigned i = 0; i < s->order_count; i++) {
        unsigned gpu = s->order[i];
        *unit = gpu_unit(gpu);
        if (matches(s, *unit, wanted)) return true;
        for (unsigned m = 0; m < s->gpu[gpu].mig_count; m++) {
            *unit = mig_unit(gpu, m);
            if (matches(s, *unit, wanted)) return true;
        }
    }
    return false;
}

/* The handle of a lost GPU can't be had either; a call on a stuck one waits like any other. */
static nvmlReturn_t hand_out(unsigned unit, nvmlDevice_t *device) {
    struct call c;
    nvmlReturn_t result = call_begin(&c, handle_of(unit), F_handle);
    if (result != NVML_SUCCESS) return result;
    call_end();
    *device = handle_of(unit);
    return NVML_SUCCESS;
}

static nvmlReturn_t find(matcher *matches, const void *wanted, nvmlDevice_t *device) {
    const struct scenario *s;
    unsigned unit;
    if (wanted == NULL || device == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = system_begin(&s);
    if (result != NVML_SUCCESS) return result;
    bool found = find_unit(s, matches, wanted, &unit);
    unlock();
    return found ? hand_out(unit, device) : NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t by_index(unsigned index, nvmlDevice_t *device) {
    const struct scenario *s;
    if (device == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = system_begin(&s);
    if (result != NVML_SUCCESS) return result;
    bool found = index < s->order_count;
    unsigned gpu = found ? s->order[index] : 0;
    unlock();
    return found ? hand_out(gpu_unit(gpu), device) : NVML_ERROR_INVALID_ARGUMENT;
}
NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return by_index(index, device);
}
NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    return by_index(index, device);
}

static bool has_uuid(const struct scenario *s, unsigned unit, const void *wanted) {
    const struct gpu *g = &s->gpu[unit_gpu(unit)];
    return strcmp(wanted, unit_is_mig(unit) ? g->mig[(unit - MAX_GPUS) % MAX_MIG].uuid : g->uuid) == 0;
}
NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return find(has_uuid, uuid, device);
}

static bool has_serial(const struct scenario *s, unsigned unit, const void *wanted) {
    return !unit_is_mig(unit) && strcmp(wanted, s->gpu[unit_gpu(unit)].serial) == 0;
}
NVML_API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return find(has_serial, serial, device);
}

/* Any usual spelling: with or without domain, four or eight digits, either case, with or without function. */
static bool has_address(const struct scenario *s, unsigned unit, const void *wanted) {
    const struct gpu *g = &s->gpu[unit_gpu(unit)];
    unsigned domain = 0, bus, device;
    if (unit_is_mig(unit)) return false;
    if (sscanf(wanted, "%x:%x:%x", &domain, &bus, &device) != 3) {
        domain = 0;
        if (sscanf(wanted, "%x:%x", &bus, &device) != 2) return false;
    }
    return domain == g->domain && bus == g->bus && device == g->device;
}
NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *address, nvmlDevice_t *device) {
    return find(has_address, address, device);
}
NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device) {
    return find(has_address, address, device);
}
