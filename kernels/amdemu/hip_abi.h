// Binary interface of the HIP runtime, as far as the emulated library needs it: numeric values of constants, opaque
// handles, and the byte layout of the structures that callers pass in. Names of API constants are the public ones;
// every structure spells out only the fields that the emulator fills, with gaps between them, and checks each offset.
#pragma once
#include "amdemu.h"
// ---- enumerations travel as plain ints
typedef int hipError_t; typedef int hipMemcpyKind; typedef int hipDeviceAttribute_t; typedef int hipFunction_attribute; typedef int hipFuncAttribute;
typedef int hipFuncCache_t; typedef int hipSharedMemConfig; typedef int hipMemoryAdvise; typedef int hipStreamCaptureMode; typedef int hipStreamCaptureStatus;
typedef int hipGraphExecUpdateResult; typedef int hipJitOption; typedef int hipLimit_t; typedef int hipDevice_t;
// ---- opaque handles
typedef struct OpaqueStream* hipStream_t; typedef struct OpaqueEvent* hipEvent_t; typedef struct OpaqueModule* hipModule_t; typedef struct OpaqueFunction* hipFunction_t;
typedef struct OpaqueCtx* hipCtx_t; typedef struct OpaqueGraph* hipGraph_t; typedef struct OpaqueGraphExec* hipGraphExec_t; typedef struct OpaqueGraphNode* hipGraphNode_t;
typedef void* hipDeviceptr_t; typedef void (*hipHostFn_t)(void*); typedef void (*hipStreamCallback_t)(hipStream_t, hipError_t, void*);
// ---- error codes
enum {
  hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2, hipErrorNotInitialized = 3,
  hipErrorDeinitialized = 4, hipErrorInvalidConfiguration = 9, hipErrorInvalidMemcpyDirection = 21,
  hipErrorNoDevice = 100, hipErrorInvalidDevice = 101, hipErrorInvalidImage = 200, hipErrorInvalidContext = 201,
  hipErrorNoBinaryForGpu = 209, hipErrorFileNotFound = 301, hipErrorInvalidHandle = 400,
  hipErrorInvalidResourceHandle = 400, hipErrorIllegalState = 401, hipErrorNotFound = 500, hipErrorNotReady = 600,
  hipErrorIllegalAddress = 700, hipErrorLaunchOutOfResources = 701, hipErrorLaunchTimeOut = 702,
  hipErrorPeerAccessUnsupported = 217, hipErrorPeerAccessAlreadyEnabled = 704, hipErrorPeerAccessNotEnabled = 705, hipErrorAssert = 710,
  hipErrorHostMemoryAlreadyRegistered = 712, hipErrorHostMemoryNotRegistered = 713, hipErrorLaunchFailure = 719,
  hipErrorNotSupported = 801, hipErrorStreamCaptureUnsupported = 900, hipErrorStreamCaptureInvalidated = 901,
  hipErrorCapturedEvent = 907, hipErrorUnknown = 999,
};
// ---- copy kinds, stream/event flags, capture, memory types
enum {
  hipGraphExecUpdateSuccess = 0, hipStreamCaptureModeGlobal = 0, hipStreamCaptureStatusNone = 0,
  hipMemcpyHostToDevice = 1, hipMemoryTypeHost = 1, hipStreamCaptureStatusActive = 1, hipStreamNonBlocking = 1,
  hipEventDisableTiming = 2, hipMemcpyDeviceToHost = 2, hipMemoryTypeDevice = 2, hipStreamCaptureStatusInvalidated = 2,
  hipMemcpyDeviceToDevice = 3, hipMemoryTypeManaged = 3, hipMemcpyDefault = 4,
};
// ---- device attributes
enum {
  hipDeviceAttributeEccEnabled = 0, hipDeviceAttributeAsyncEngineCount = 2, hipDeviceAttributeCanMapHostMemory = 3,
  hipDeviceAttributeClockRate = 5, hipDeviceAttributeComputeMode = 6, hipDeviceAttributeConcurrentKernels = 8,
  hipDeviceAttributeConcurrentManagedAccess = 9, hipDeviceAttributeCooperativeLaunch = 10,
  hipDeviceAttributeIntegrated = 16, hipDeviceAttributeIsMultiGpuBoard = 17, hipDeviceAttributeKernelExecTimeout = 18,
  hipDeviceAttributeL2CacheSize = 19, hipDeviceAttributeComputeCapabilityMajor = 23,
  hipDeviceAttributeManagedMemory = 24, hipDeviceAttributeMaxBlocksPerMultiProcessor = 25,
  hipDeviceAttributeMaxBlockDimX = 26, hipDeviceAttributeMaxBlockDimY = 27, hipDeviceAttributeMaxBlockDimZ = 28,
  hipDeviceAttributeMaxGridDimX = 29, hipDeviceAttributeMaxGridDimY = 30, hipDeviceAttributeMaxGridDimZ = 31,
  hipDeviceAttributeMaxThreadsPerBlock = 56, hipDeviceAttributeMaxThreadsPerMultiProcessor = 57,
  hipDeviceAttributeMemoryBusWidth = 59, hipDeviceAttributeMemoryClockRate = 60,
  hipDeviceAttributeComputeCapabilityMinor = 61, hipDeviceAttributeMultiprocessorCount = 63,
  hipDeviceAttributePageableMemoryAccess = 65, hipDeviceAttributePciBusId = 67, hipDeviceAttributePciDeviceId = 68,
  hipDeviceAttributePciDomainID = 69, hipDeviceAttributeMaxRegistersPerBlock = 71,
  hipDeviceAttributeMaxRegistersPerMultiprocessor = 72, hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
  hipDeviceAttributeSharedMemPerBlockOptin = 75, hipDeviceAttributeSharedMemPerMultiprocessor = 76,
  hipDeviceAttributeStreamPrioritiesSupported = 78, hipDeviceAttributeTotalConstantMemory = 83,
  hipDeviceAttributeUnifiedAddressing = 85, hipDeviceAttributeWarpSize = 87, hipDeviceAttributeMemoryPoolsSupported = 88,
  hipDeviceAttributeVirtualMemoryManagementSupported = 89, hipDeviceAttributeHostRegisterSupported = 90,
  hipDeviceAttributeMaxSharedMemoryPerMultiprocessor = 10002, hipDeviceAttributeIsLargeBar = 10011,
  hipDeviceAttributePhysicalMultiProcessorCount = 10015, hipDeviceAttributeWallClockRate = 10017,
};
// ---- function attributes and launch-parameter markers
enum {
  HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2, HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3, HIP_FUNC_ATTRIBUTE_NUM_REGS = 4,
  HIP_FUNC_ATTRIBUTE_PTX_VERSION = 5, HIP_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
  HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};
#define LAUNCH_PARAM_POINTER ((void*)1)
#define LAUNCH_PARAM_SIZE ((void*)2)
#define LAUNCH_PARAM_END ((void*)3)
// ---- device properties as ROCm 6 and later lay them out (symbol hipGetDevicePropertiesR0600); byte offsets on the right
struct PropsR0600 {
  char name[256];                       // 0
  u8 uuid[16];                          // 256
  u8 gap0[16];                          // 272
  u64 totalGlobalMem;                   // 288
  u64 sharedMemPerBlock;                // 296
  i32 regsPerBlock;                     // 304
  i32 warpSize;                         // 308
  u64 memPitch;                         // 312
  i32 maxThreadsPerBlock;               // 320
  i32 maxThreadsDim[3];                 // 324
  i32 maxGridSize[3];                   // 336
  i32 clockRate;                        // 348
  u64 totalConstMem;                    // 352
  i32 major;                            // 360
  i32 minor;                            // 364
  u64 textureAlignment;                 // 368
  u8 gap1[12];                          // 376
  i32 multiProcessorCount;              // 388
  u8 gap2[4];                           // 392
  i32 integrated;                       // 396
  i32 canMapHostMemory;                 // 400
  i32 computeMode;                      // 404
  u8 gap3[168];                         // 408
  i32 concurrentKernels;                // 576
  u8 gap4[4];                           // 580
  i32 pciBusID;                         // 584
  i32 pciDeviceID;                      // 588
  i32 pciDomainID;                      // 592
  u8 gap5[4];                           // 596
  i32 asyncEngineCount;                 // 600
  i32 unifiedAddressing;                // 604
  i32 memoryClockRate;                  // 608
  i32 memoryBusWidth;                   // 612
  i32 l2CacheSize;                      // 616
  u8 gap6[4];                           // 620
  i32 maxThreadsPerMultiProcessor;      // 624
  i32 streamPrioritiesSupported;        // 628
  u8 gap7[8];                           // 632
  u64 sharedMemPerMultiprocessor;       // 640
  i32 regsPerMultiprocessor;            // 648
  i32 managedMemory;                    // 652
  i32 isMultiGpuBoard;                  // 656
  u8 gap8[28];                          // 660
  i32 cooperativeLaunch;                // 688
  u8 gap9[4];                           // 692
  u64 sharedMemPerBlockOptin;           // 696
  u8 gap10[8];                          // 704
  i32 maxBlocksPerMultiProcessor;       // 712
  u8 gap11[12];                         // 716
  i32 hostRegisterSupported;            // 728
  u8 gap12[428];                        // 732
  char gcnArchName[256];                // 1160
  u64 maxSharedMemoryPerMultiProcessor; // 1416
  u8 gap13[40];                         // 1424
  i32 isLargeBar;                       // 1464
  u8 gap14[4];                          // 1468
};
#define AT(f, o) static_assert(offsetof(PropsR0600, f) == o, #f);
AT(name, 0) AT(uuid, 256) AT(totalGlobalMem, 288) AT(sharedMemPerBlock, 296) AT(regsPerBlock, 304) AT(warpSize, 308)
AT(memPitch, 312) AT(maxThreadsPerBlock, 320) AT(maxThreadsDim, 324) AT(maxGridSize, 336) AT(clockRate, 348)
AT(totalConstMem, 352) AT(major, 360) AT(minor, 364) AT(textureAlignment, 368) AT(multiProcessorCount, 388) AT(integrated, 396)
AT(canMapHostMemory, 400) AT(computeMode, 404) AT(concurrentKernels, 576) AT(pciBusID, 584) AT(pciDeviceID, 588)
AT(pciDomainID, 592) AT(asyncEngineCount, 600) AT(unifiedAddressing, 604) AT(memoryClockRate, 608) AT(memoryBusWidth, 612)
AT(l2CacheSize, 616) AT(maxThreadsPerMultiProcessor, 624) AT(streamPrioritiesSupported, 628) AT(sharedMemPerMultiprocessor, 640)
AT(regsPerMultiprocessor, 648) AT(managedMemory, 652) AT(isMultiGpuBoard, 656) AT(cooperativeLaunch, 688)
AT(sharedMemPerBlockOptin, 696) AT(maxBlocksPerMultiProcessor, 712) AT(hostRegisterSupported, 728) AT(gcnArchName, 1160)
AT(maxSharedMemoryPerMultiProcessor, 1416) AT(isLargeBar, 1464)
#undef AT
static_assert(sizeof(PropsR0600) == 1472, "size");
// ---- device properties as ROCm 5 laid them out (symbols hipGetDeviceProperties and hipGetDevicePropertiesR0000)
struct PropsR0000 {
  char name[256];                       // 0
  u64 totalGlobalMem;                   // 256
  u64 sharedMemPerBlock;                // 264
  i32 regsPerBlock;                     // 272
  i32 warpSize;                         // 276
  i32 maxThreadsPerBlock;               // 280
  i32 maxThreadsDim[3];                 // 284
  i32 maxGridSize[3];                   // 296
  i32 clockRate;                        // 308
  i32 memoryClockRate;                  // 312
  i32 memoryBusWidth;                   // 316
  u64 totalConstMem;                    // 320
  i32 major;                            // 328
  i32 minor;                            // 332
  i32 multiProcessorCount;              // 336
  i32 l2CacheSize;                      // 340
  i32 maxThreadsPerMultiProcessor;      // 344
  i32 computeMode;                      // 348
  u8 gap0[8];                           // 352
  i32 concurrentKernels;                // 360
  i32 pciDomainID;                      // 364
  i32 pciBusID;                         // 368
  i32 pciDeviceID;                      // 372
  u64 maxSharedMemoryPerMultiProcessor; // 376
  i32 isMultiGpuBoard;                  // 384
  i32 canMapHostMemory;                 // 388
  u8 gap1[4];                           // 392
  char gcnArchName[256];                // 396
  i32 integrated;                       // 652
  i32 cooperativeLaunch;                // 656
  u8 gap2[52];                          // 660
  u64 memPitch;                         // 712
  u64 textureAlignment;                 // 720
  u8 gap3[36];                          // 728
  i32 isLargeBar;                       // 764
  u8 gap4[4];                           // 768
  i32 managedMemory;                    // 772
  u8 gap5[16];                          // 776
};
#define AT(f, o) static_assert(offsetof(PropsR0000, f) == o, #f);
AT(name, 0) AT(totalGlobalMem, 256) AT(sharedMemPerBlock, 264) AT(regsPerBlock, 272) AT(warpSize, 276)
AT(maxThreadsPerBlock, 280) AT(maxThreadsDim, 284) AT(maxGridSize, 296) AT(clockRate, 308) AT(memoryClockRate, 312)
AT(memoryBusWidth, 316) AT(totalConstMem, 320) AT(major, 328) AT(minor, 332) AT(multiProcessorCount, 336) AT(l2CacheSize, 340)
AT(maxThreadsPerMultiProcessor, 344) AT(computeMode, 348) AT(concurrentKernels, 360) AT(pciDomainID, 364) AT(pciBusID, 368)
AT(pciDeviceID, 372) AT(maxSharedMemoryPerMultiProcessor, 376) AT(isMultiGpuBoard, 384) AT(canMapHostMemory, 388)
AT(gcnArchName, 396) AT(integrated, 652) AT(cooperativeLaunch, 656) AT(memPitch, 712) AT(textureAlignment, 720)
AT(isLargeBar, 764) AT(managedMemory, 772)
#undef AT
static_assert(sizeof(PropsR0000) == 792, "size");
// ---- hipPointerGetAttributes (ROCm 6 layout) and hipDeviceGetUuid
struct PtrAttr {
  i32 type;            // 0
  i32 device;          // 4
  void* devicePointer; // 8
  void* hostPointer;   // 16
  i32 isManaged;       // 24
  u32 allocationFlags; // 28
};
static_assert(sizeof(PtrAttr) == 32 && offsetof(PtrAttr, devicePointer) == 8 && offsetof(PtrAttr, hostPointer) == 16 && offsetof(PtrAttr, allocationFlags) == 28, "PtrAttr");
struct Uuid { u8 bytes[16]; };
