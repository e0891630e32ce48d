/* The slice of NVML's binary interface that this library offers.
 *
 * Only layouts and numbers, written down independently of NVIDIA's header; the asserts below hold them in place.
 * `make check-abi NVML_H=/path/to/nvml.h` compiles every exported function against the vendor's prototypes. */
#ifndef NVML_ABI_H
#define NVML_ABI_H

#include <assert.h>
#include <stddef.h>

#define NVML_API __attribute__((visibility("default")))

#ifdef HEELER_REAL_NVML_H
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include HEELER_REAL_NVML_H
#else

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

/* Selectors that callers pass by value: all are C enums, so 32 bits wide. */
typedef enum { NVML_FEATURE_DISABLED = 0, NVML_FEATURE_ENABLED = 1 } nvmlEnableState_t;
typedef enum { NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_VIDEO, NVML_CLOCK_COUNT } nvmlClockType_t;
typedef enum { NVML_CLOCK_ID_CURRENT, NVML_CLOCK_ID_COUNT = 4 } nvmlClockId_t;
typedef enum { NVML_TEMPERATURE_GPU, NVML_TEMPERATURE_GPU_MAX } nvmlTemperatureSensors_t;
typedef enum { NVML_TEMPERATURE_THRESHOLD_SHUTDOWN, NVML_TEMPERATURE_THRESHOLD_COUNT = 8 } nvmlTemperatureThresholds_t;
typedef enum { NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED } nvmlMemoryErrorType_t;
typedef enum { NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC } nvmlEccCounterType_t;
typedef enum { NVML_MEMORY_LOCATION_L1_CACHE, NVML_MEMORY_LOCATION_DRAM = 2, NVML_MEMORY_LOCATION_COUNT = 8 } nvmlMemoryLocation_t;
typedef enum { NVML_PAGE_RETIREMENT_CAUSE_SBE, NVML_PAGE_RETIREMENT_CAUSE_DBE } nvmlPageRetirementCause_t;
typedef enum { NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_COUNT = 12 } nvmlPerfPolicyType_t;
typedef enum { NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES } nvmlPcieUtilCounter_t;
typedef enum { NVML_PSTATE_0, NVML_PSTATE_UNKNOWN = 32 } nvmlPstates_t;
typedef enum { NVML_BRAND_UNKNOWN, NVML_BRAND_TESLA = 2, NVML_BRAND_NVIDIA = 14 } nvmlBrandType_t;
typedef enum { NVML_COMPUTEMODE_DEFAULT } nvmlComputeMode_t;
typedef enum { NVML_NVLINK_ERROR_DL_REPLAY, NVML_NVLINK_ERROR_COUNT = 5 } nvmlNvLinkErrorCounter_t;
typedef enum { NVML_NVLINK_CAP_P2P_SUPPORTED, NVML_NVLINK_CAP_COUNT = 6 } nvmlNvLinkCapability_t;
typedef enum { NVML_NVLINK_DEVICE_TYPE_GPU, NVML_NVLINK_DEVICE_TYPE_SWITCH = 2 } nvmlIntNvLinkDeviceType_t;
typedef enum {
    NVML_VALUE_TYPE_DOUBLE = 0,
    NVML_VALUE_TYPE_UNSIGNED_INT = 1,
    NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3,
    NVML_VALUE_TYPE_SIGNED_INT = 5
} nvmlValueType_t;
typedef unsigned int nvmlDeviceArchitecture_t;
typedef unsigned int nvmlBusType_t;

typedef struct { struct nvmlDevice_st *handle; } nvmlDevice_t;
typedef struct { struct nvmlEventSet_st *handle; } nvmlEventSet_t;
typedef struct { struct nvmlGpmSample_st *handle; } nvmlGpmSample_t;

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct {
    unsigned int version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
    char busId[32];
} nvmlPciInfoExt_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned long long bar1Total, bar1Free, bar1Used; } nvmlBAR1Memory_t;
typedef struct { unsigned int pid; unsigned long long usedGpuMemory; } nvmlProcessInfo_v1_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
typedef nvmlProcessInfo_t nvmlProcessInfo_v2_t;
typedef struct {
    unsigned int multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;
typedef struct { unsigned int max, high, partial, low, none; } nvmlRowRemapperHistogramValues_t;
typedef struct { unsigned long long referenceTime, violationTime; } nvmlViolationTime_t;
typedef struct { unsigned int version; nvmlTemperatureSensors_t sensorType; int temperature; } nvmlTemperature_t;
typedef struct { unsigned int version; int marginTemperature; } nvmlMarginTemperature_t;
typedef union {
    double dVal;
    int siVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    long long sllVal;
    unsigned short usVal;
} nvmlValue_t;
typedef struct {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    nvmlValueType_t valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;
typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
typedef struct { char *shortName, *longName, *unit; } nvmlGpmMetricMetricInfo_t;
typedef struct {
    unsigned int metricId;
    nvmlReturn_t nvmlReturn;
    double value;
    nvmlGpmMetricMetricInfo_t metricInfo;
} nvmlGpmMetric_t;
/* Drivers disagree about the length of `metrics`; only the first numMetrics entries are ever touched here. */
typedef struct {
    unsigned int version, numMetrics;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[477];
} nvmlGpmMetricsGet_t;
typedef struct { unsigned int version, isSupportedDevice; } nvmlGpmSupport_t;
typedef struct {
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned int cliqueId;
    unsigned char state;
} nvmlGpuFabricInfo_t;
/* Versions 2 and 3 share this layout up to healthMask; version 2 ends there. */
typedef struct {
    unsigned int version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned int cliqueId;
    unsigned char state;
    unsigned int healthMask;
    unsigned char healthSummary;
} nvmlGpuFabricInfoV_t;

#endif /* HEELER_REAL_NVML_H */

static_assert(sizeof(nvmlReturn_t) == 4 && sizeof(nvmlDevice_t) == 8, "enums are 32 bits, handles are pointers");
static_assert(sizeof(nvmlPciInfo_t) == 68 && offsetof(nvmlPciInfo_t, busId) == 36, "nvmlPciInfo_t");
static_assert(sizeof(nvmlPciInfoExt_t) == 64, "nvmlPciInfoExt_t");
static_assert(sizeof(nvmlMemory_t) == 24 && sizeof(nvmlMemory_v2_t) == 40, "nvmlMemory_t");
static_assert(sizeof(nvmlProcessInfo_v1_t) == 16 && sizeof(nvmlProcessInfo_t) == 24, "nvmlProcessInfo_t");
static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "nvmlDeviceAttributes_t");
static_assert(sizeof(nvmlTemperature_t) == 12 && sizeof(nvmlMarginTemperature_t) == 8, "nvmlTemperature_t");
static_assert(sizeof(nvmlFieldValue_t) == 40 && offsetof(nvmlFieldValue_t, value) == 32, "nvmlFieldValue_t");
static_assert(sizeof(nvmlEventData_t) == 32, "nvmlEventData_t");
static_assert(sizeof(nvmlGpmMetric_t) == 40 && offsetof(nvmlGpmMetricsGet_t, metrics) == 24, "nvmlGpmMetricsGet_t");
static_assert(sizeof(nvmlGpuFabricInfo_t) == 28 && sizeof(nvmlGpuFabricInfoV_t) == 40, "nvmlGpuFabricInfoV_t");
static_assert(offsetof(nvmlGpuFabricInfoV_t, healthMask) == 32, "nvmlGpuFabricInfoV_t.healthMask");

#define STRUCT_VERSION(size, number) ((unsigned int)(size) | ((unsigned int)(number) << 24))
#define NVML_NO_INSTANCE 0xFFFFFFFFu

#endif
