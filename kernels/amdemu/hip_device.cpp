// Devices: what they say of themselves, contexts, peer access.
#include "hip_state.h"
#include <cstdio>
#include <cstdlib>

enum { RUNTIME_VERSION = 60342131 };

// A board that has the architecture, as its runtime describes it. On RDNA the
// runtime counts work-group processors of two compute units each.
struct Board {
	const char *arch, *name, *gcn_name;
	int units, wave, l2, bus, clock, memory_clock; // bytes, bits, kHz
};
static const Board boards[] = {
    {"gfx90a", "AMD Instinct MI210 (amdemu)", "gfx90a:sramecc+:xnack-", 104, 64, 8 << 20, 4096, 1700000, 1600000},
    {"gfx942", "AMD Instinct MI300X (amdemu)", "gfx942:sramecc+:xnack-", 304, 64, 4 << 20, 8192, 2100000, 1300000},
    {"gfx1030", "AMD Radeon RX 6800 XT (amdemu)", "gfx1030", 36, 32, 4 << 20, 256, 2250000, 1000000},
    {"gfx1100", "AMD Radeon RX 7900 XTX (amdemu)", "gfx1100", 48, 32, 6 << 20, 384, 2482000, 1249000},
    {"gfx1201", "AMD Radeon RX 9070 XT (amdemu)", "gfx1201", 32, 32, 8 << 20, 256, 2400000, 1258000},
};
const int registers_per_block = 65536, lds_bytes = 65536, threads_per_unit = 2048;

static Board board() {
	const std::string& arch = settings().arch;
	for (const Board& b : boards)
		if (arch == b.arch) return b;
	static const std::string name = "AMD GPU (amdemu " + arch + ")";
	const int wave = arch.compare(0, 4, "gfx9") == 0 ? 64 : 32;
	return {arch.c_str(), name.c_str(), arch.c_str(), 48, wave, 6 << 20, 384, 2482000, 1249000};
}
int compute_units() { return board().units; }

// gfx90a is 9.0, gfx1100 is 11.0: the last digit is the stepping.
static void version_of(const std::string& arch, int* major, int* minor) {
	std::string digits = arch.substr(3);
	*minor = digits.size() >= 2 ? (int)strtol(digits.substr(digits.size() - 2, 1).c_str(), nullptr, 16) : 0;
	*major = atoi(digits.substr(0, digits.size() - 2).c_str());
}

// The fields that both layouts have.
template <class Props> static void fill(Props* p, int dev) {
	Board b = board();
	memset(p, 0, sizeof *p);
	snprintf(p->name, sizeof p->name, "%s", b.name);
	snprintf(p->gcnArchName, sizeof p->gcnArchName, "%s", b.gcn_name);
	p->totalGlobalMem = settings().vram;
	p->sharedMemPerBlock = p->maxSharedMemoryPerMultiProcessor = lds_bytes;
	p->regsPerBlock = registers_per_block;
	p->warpSize = b.wave;
	p->maxThreadsPerBlock = 1024;
	for (int& d : p->maxThreadsDim) d = 1024;
	p->maxGridSize[0] = 2147483647;
	p->maxGridSize[1] = p->maxGridSize[2] = 65536;
	p->clockRate = b.clock;
	p->memoryClockRate = b.memory_clock;
	p->memoryBusWidth = b.bus;
	p->totalConstMem = p->memPitch = 2147483647;
	version_of(settings().arch, &p->major, &p->minor);
	p->multiProcessorCount = b.units;
	p->l2CacheSize = b.l2;
	p->maxThreadsPerMultiProcessor = threads_per_unit;
	p->concurrentKernels = p->canMapHostMemory = p->cooperativeLaunch = p->managedMemory = 1;
	p->pciBusID = 3 + dev;
	p->textureAlignment = 256;
}

static void fill_uuid(u8* bytes, int dev) {
	for (int i = 0; i < 16; i++) bytes[i] = (u8)(i * 16 + dev);
}

API hipError_t hipInit(unsigned flags) { RETURN(flags ? hipErrorInvalidValue : hipSuccess); }
API hipError_t hipDriverGetVersion(int* v) {
	if (!v) RETURN(hipErrorInvalidValue);
	*v = RUNTIME_VERSION;
	return hipSuccess;
}
API hipError_t hipRuntimeGetVersion(int* v) { return hipDriverGetVersion(v); }
API hipError_t hipGetDeviceCount(int* count) {
	if (!count) RETURN(hipErrorInvalidValue);
	*count = settings().devices;
	RETURN(*count ? hipSuccess : hipErrorNoDevice);
}
API hipError_t hipGetDevice(int* d) {
	if (!d) RETURN(hipErrorInvalidValue);
	*d = current_device;
	return hipSuccess;
}
API hipError_t hipSetDevice(int d) {
	if (!is_device(d)) RETURN(hipErrorInvalidDevice);
	current_device = d;
	return hipSuccess;
}
API hipError_t hipDeviceGet(hipDevice_t* d, int ordinal) {
	if (!d || !is_device(ordinal)) RETURN(hipErrorInvalidDevice);
	*d = ordinal;
	return hipSuccess;
}

API hipError_t hipGetDevicePropertiesR0600(PropsR0600* p, int d) {
	if (!p) RETURN(hipErrorInvalidValue);
	if (!is_device(d)) RETURN(hipErrorInvalidDevice);
	fill(p, d);
	p->regsPerMultiprocessor = registers_per_block;
	p->sharedMemPerMultiprocessor = p->sharedMemPerBlockOptin = lds_bytes;
	p->maxBlocksPerMultiProcessor = 32;
	p->unifiedAddressing = p->hostRegisterSupported = p->streamPrioritiesSupported = 1;
	p->asyncEngineCount = 2;
	fill_uuid(p->uuid, d);
	return hipSuccess;
}
API hipError_t hipGetDevicePropertiesR0000(PropsR0000* p, int d) {
	if (!p) RETURN(hipErrorInvalidValue);
	if (!is_device(d)) RETURN(hipErrorInvalidDevice);
	fill(p, d);
	return hipSuccess;
}
API hipError_t hipGetDeviceProperties(PropsR0000* p, int d) { return hipGetDevicePropertiesR0000(p, d); }
API hipError_t hipDeviceGetName(char* name, int size, hipDevice_t d) {
	if (!name || !is_device(d)) RETURN(hipErrorInvalidValue);
	snprintf(name, size, "%s", board().name);
	return hipSuccess;
}
API hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t d) {
	if (!bytes || !is_device(d)) RETURN(hipErrorInvalidValue);
	*bytes = settings().vram;
	return hipSuccess;
}
API hipError_t hipDeviceComputeCapability(int* major, int* minor, hipDevice_t) {
	version_of(settings().arch, major, minor);
	return hipSuccess;
}
API hipError_t hipDeviceGetPCIBusId(char* s, int size, int d) {
	snprintf(s, size, "0000:%02x:00.0", 3 + d);
	return hipSuccess;
}
API hipError_t hipDeviceGetUuid(Uuid* u, hipDevice_t d) {
	fill_uuid(u->bytes, d);
	return hipSuccess;
}

// Attributes that read a field of the properties, and those with a value of their own.
static const std::unordered_map<int, i32 PropsR0600::*> attribute_fields = {
    {hipDeviceAttributeMaxThreadsPerBlock, &PropsR0600::maxThreadsPerBlock}, {hipDeviceAttributeWarpSize, &PropsR0600::warpSize},
    {hipDeviceAttributeMaxRegistersPerBlock, &PropsR0600::regsPerBlock}, {hipDeviceAttributeMaxRegistersPerMultiprocessor, &PropsR0600::regsPerBlock},
    {hipDeviceAttributeClockRate, &PropsR0600::clockRate}, {hipDeviceAttributeMemoryClockRate, &PropsR0600::memoryClockRate},
    {hipDeviceAttributeMemoryBusWidth, &PropsR0600::memoryBusWidth}, {hipDeviceAttributeMultiprocessorCount, &PropsR0600::multiProcessorCount},
    {hipDeviceAttributeL2CacheSize, &PropsR0600::l2CacheSize}, {hipDeviceAttributeMaxThreadsPerMultiProcessor, &PropsR0600::maxThreadsPerMultiProcessor},
    {hipDeviceAttributeComputeCapabilityMajor, &PropsR0600::major}, {hipDeviceAttributeComputeCapabilityMinor, &PropsR0600::minor},
    {hipDeviceAttributePciBusId, &PropsR0600::pciBusID}, {hipDeviceAttributePciDeviceId, &PropsR0600::pciDeviceID}, {hipDeviceAttributePciDomainID, &PropsR0600::pciDomainID},
    {hipDeviceAttributeMaxBlocksPerMultiProcessor, &PropsR0600::maxBlocksPerMultiProcessor}, {hipDeviceAttributeAsyncEngineCount, &PropsR0600::asyncEngineCount},
};
static const std::unordered_map<int, int> attribute_values = {
    {hipDeviceAttributeMaxBlockDimX, 1024}, {hipDeviceAttributeMaxBlockDimY, 1024}, {hipDeviceAttributeMaxBlockDimZ, 1024},
    {hipDeviceAttributeMaxGridDimX, 2147483647}, {hipDeviceAttributeMaxGridDimY, 65536}, {hipDeviceAttributeMaxGridDimZ, 65536},
    {hipDeviceAttributeMaxSharedMemoryPerBlock, lds_bytes}, {hipDeviceAttributeSharedMemPerBlockOptin, lds_bytes},
    {hipDeviceAttributeSharedMemPerMultiprocessor, lds_bytes}, {hipDeviceAttributeMaxSharedMemoryPerMultiprocessor, lds_bytes},
    {hipDeviceAttributeWallClockRate, 100000}, {hipDeviceAttributeTotalConstantMemory, 2147483647},
    {hipDeviceAttributeConcurrentKernels, 1}, {hipDeviceAttributeCooperativeLaunch, 1}, {hipDeviceAttributeManagedMemory, 1},
    {hipDeviceAttributeUnifiedAddressing, 1}, {hipDeviceAttributeCanMapHostMemory, 1}, {hipDeviceAttributeHostRegisterSupported, 1},
    {hipDeviceAttributeMemoryPoolsSupported, 1}, {hipDeviceAttributeStreamPrioritiesSupported, 1},
    {hipDeviceAttributeComputeMode, 0}, {hipDeviceAttributeEccEnabled, 0}, {hipDeviceAttributeIsMultiGpuBoard, 0},
    {hipDeviceAttributeVirtualMemoryManagementSupported, 0}, {hipDeviceAttributeConcurrentManagedAccess, 0}, {hipDeviceAttributePageableMemoryAccess, 0},
    {hipDeviceAttributeIsLargeBar, 0}, {hipDeviceAttributeKernelExecTimeout, 0},
};
API hipError_t hipDeviceGetAttribute(int* v, hipDeviceAttribute_t a, int d) {
	if (!v) RETURN(hipErrorInvalidValue);
	if (!is_device(d)) RETURN(hipErrorInvalidDevice);
	PropsR0600 p;
	hipGetDevicePropertiesR0600(&p, d);
	if (a == hipDeviceAttributePhysicalMultiProcessorCount) {
		*v = p.multiProcessorCount * (p.warpSize == 32 ? 2 : 1);
	} else if (a == hipDeviceAttributeIntegrated) {
		*v = settings().integrated;
	} else if (auto field = attribute_fields.find(a); field != attribute_fields.end()) {
		*v = p.*field->second;
	} else if (auto value = attribute_values.find(a); value != attribute_values.end()) {
		*v = value->second;
	} else {
		*v = 0;
		RETURN(hipErrorInvalidValue);
	}
	return hipSuccess;
}

API hipError_t hipDeviceSynchronize() {
	BEGIN;
	for (Stream* s : rt.streams)
		if (s->capture && s->dev == current_device && s->capture->mode == hipStreamCaptureModeGlobal) {
			s->capture->bad = true;
			RETURN(hipErrorStreamCaptureUnsupported);
		}
	flush_device(current_device);
	RETURN(rt.sticky);
}
API hipError_t hipDeviceReset() {
	Runtime& rt = runtime();
	std::lock_guard<std::recursive_mutex> guard(rt.lock);
	flush_all();
	rt.sticky = hipSuccess;
	return hipSuccess;
}
API hipError_t hipDeviceCanAccessPeer(int* can, int d, int peer) {
	if (!can || !is_device(d) || !is_device(peer)) RETURN(hipErrorInvalidDevice);
	*can = d != peer && settings().peers;
	return hipSuccess;
}
API hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
	if (flags) RETURN(hipErrorInvalidValue);
	if (!is_device(peer) || peer == current_device) RETURN(hipErrorInvalidDevice);
	if (!settings().peers) RETURN(hipErrorPeerAccessUnsupported);
	bool& on = runtime().peers[current_device][peer];
	if (on) RETURN(hipErrorPeerAccessAlreadyEnabled);
	on = true;
	return hipSuccess;
}
API hipError_t hipDeviceDisablePeerAccess(int peer) {
	if (!is_device(peer)) RETURN(hipErrorInvalidDevice);
	bool& on = runtime().peers[current_device][peer];
	if (!on) RETURN(hipErrorPeerAccessNotEnabled);
	on = false;
	return hipSuccess;
}
API hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
	if (least) *least = 1;
	if (greatest) *greatest = -1;
	return hipSuccess;
}
API hipError_t hipSetDeviceFlags(unsigned) { return hipSuccess; }
API hipError_t hipGetDeviceFlags(unsigned* flags) {
	*flags = 0;
	return hipSuccess;
}
API hipError_t hipDeviceSetCacheConfig(hipFuncCache_t) { return hipSuccess; }
API hipError_t hipDeviceGetLimit(size_t* v, hipLimit_t) {
	*v = 1 << 20;
	return hipSuccess;
}
API hipError_t hipDeviceSetLimit(hipLimit_t, size_t) { return hipSuccess; }

// A context is the number of its device, from 1.
API hipError_t hipCtxCreate(hipCtx_t* c, unsigned, hipDevice_t d) {
	if (!is_device(d)) RETURN(hipErrorInvalidDevice);
	*c = (hipCtx_t)(u64)(d + 1);
	current_device = d;
	return hipSuccess;
}
API hipError_t hipCtxDestroy(hipCtx_t) { return hipSuccess; }
API hipError_t hipCtxSetCurrent(hipCtx_t c) {
	if (c) current_device = (int)(u64)c - 1;
	return hipSuccess;
}
API hipError_t hipCtxGetCurrent(hipCtx_t* c) {
	*c = (hipCtx_t)(u64)(current_device + 1);
	return hipSuccess;
}
API hipError_t hipCtxPushCurrent(hipCtx_t c) { return hipCtxSetCurrent(c); }
API hipError_t hipCtxPopCurrent(hipCtx_t* c) { return hipCtxGetCurrent(c); }
API hipError_t hipCtxGetDevice(hipDevice_t* d) { return hipGetDevice(d); }
API hipError_t hipCtxSynchronize() { return hipDeviceSynchronize(); }
API hipError_t hipDevicePrimaryCtxRetain(hipCtx_t* c, hipDevice_t d) {
	if (!is_device(d)) RETURN(hipErrorInvalidDevice);
	*c = (hipCtx_t)(u64)(d + 1);
	return hipSuccess;
}
API hipError_t hipDevicePrimaryCtxRelease(hipDevice_t) { return hipSuccess; }
