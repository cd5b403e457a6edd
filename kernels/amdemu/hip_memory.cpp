// Allocations on the device and of the host.
#include "hip_state.h"
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

enum { PAGE = 4096 };
static u64 whole_pages(u64 n) { return (n + PAGE - 1) & ~(u64)(PAGE - 1); }

// New memory is NaN in every float format.
static void poison(void* p, u64 n) {
	if (settings().fill && n <= settings().fill_max) memset(p, 0xff, n);
}

// An address is used once, and a page behind each buffer belongs to nobody.
static hipError_t allocate(void** p, size_t n, int dev) {
	if (!p) return hipErrorInvalidValue;
	*p = nullptr;
	if (n == 0) return hipSuccess;
	Runtime& rt = runtime();
	Arena& arena = rt.arena;
	const u64 vram = settings().vram, reserved = whole_pages(n);
	if (n > vram || rt.used[dev] + n > vram || arena.used + reserved + PAGE > arena.size) return hipErrorOutOfMemory;
	u64 a = (u64)arena.shadow + arena.used;
	arena.used += reserved + PAGE;
	rt.used[dev] += n;
	rt.allocations[a] = {n, reserved, dev, Kind::DEVICE, nullptr, 0};
	memory_add(a, n, "device buffer", (i64)((u64)arena.backing - (u64)arena.shadow), dev);
	poison(arena.bytes(a), n);
	*p = (void*)a;
	return hipSuccess;
}

static hipError_t release(void* p) {
	if (!p) return hipSuccess;
	Runtime& rt = runtime();
	auto it = rt.allocations.find((u64)p);
	if (it == rt.allocations.end() || it->second.kind == Kind::PINNED || it->second.kind == Kind::REGISTERED) {
		fprintf(stderr, "[amdemu] hipFree(%p): not a live device allocation\n", p);
		return hipErrorInvalidValue;
	}
	memory_remove((u64)p);
	if (it->second.kind == Kind::MANAGED) {
		free(it->second.own);
	} else {
		rt.used[it->second.dev] -= it->second.size;
		madvise(rt.arena.bytes((u64)p), it->second.reserved, MADV_DONTNEED);
	}
	rt.allocations.erase(it);
	return hipSuccess;
}

API hipError_t hipMalloc(void** p, size_t n) {
	BEGIN;
	NOT_IN_CAPTURE;
	RETURN(allocate(p, n, current_device));
}
API hipError_t hipExtMallocWithFlags(void** p, size_t n, unsigned) { return hipMalloc(p, n); }
API hipError_t hipMallocAsync(void** p, size_t n, hipStream_t s) {
	BEGIN;
	Stream* stream = stream_of(s);
	if (!stream) RETURN(hipErrorInvalidHandle);
	RETURN(allocate(p, n, stream->dev));
}
API hipError_t hipFree(void* p) {
	BEGIN;
	NOT_IN_CAPTURE;
	Allocation* a = allocation_at(p);
	flush_device(a ? a->dev : current_device); // another may wait for this one
	RETURN(release(p));
}
API hipError_t hipFreeAsync(void* p, hipStream_t s) {
	BEGIN;
	Stream* stream = stream_of(s);
	if (!stream) RETURN(hipErrorInvalidHandle);
	RETURN(enqueue(stream, [p] { return (int)release(p); }));
}
API hipError_t hipMallocManaged(void** p, size_t n, unsigned) {
	BEGIN;
	void* q = aligned_alloc(PAGE, whole_pages(n));
	if (!q) RETURN(hipErrorOutOfMemory);
	rt.allocations[(u64)q] = {n, n, current_device, Kind::MANAGED, q, 0};
	memory_add((u64)q, n, "managed buffer");
	*p = q;
	RETURN(hipSuccess);
}

API hipError_t hipHostMalloc(void** p, size_t n, unsigned flags) {
	BEGIN;
	NOT_IN_CAPTURE;
	if (!p) RETURN(hipErrorInvalidValue);
	*p = nullptr;
	if (!n) RETURN(hipSuccess);
	void* q = mmap(nullptr, whole_pages(n), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (q == MAP_FAILED) RETURN(hipErrorOutOfMemory);
	poison(q, n);
	rt.allocations[(u64)q] = {n, whole_pages(n), current_device, Kind::PINNED, q, flags};
	memory_add((u64)q, n, "pinned host buffer");
	*p = q;
	RETURN(hipSuccess);
}
API hipError_t hipHostAlloc(void** p, size_t n, unsigned flags) { return hipHostMalloc(p, n, flags); }
API hipError_t hipMallocHost(void** p, size_t n) { return hipHostMalloc(p, n, 0); }
API hipError_t hipMemAllocHost(void** p, size_t n) { return hipHostMalloc(p, n, 0); }
API hipError_t hipHostFree(void* p) {
	BEGIN;
	NOT_IN_CAPTURE;
	if (!p) RETURN(hipSuccess);
	flush_device(current_device);
	auto it = rt.allocations.find((u64)p);
	if (it == rt.allocations.end() || it->second.kind != Kind::PINNED) RETURN(hipErrorInvalidValue);
	memory_remove((u64)p);
	munmap(p, it->second.reserved);
	rt.allocations.erase(it);
	RETURN(hipSuccess);
}
API hipError_t hipFreeHost(void* p) { return hipHostFree(p); }
API hipError_t hipHostRegister(void* p, size_t n, unsigned flags) {
	BEGIN;
	if (!p || !n) RETURN(hipErrorInvalidValue);
	if (allocation_at(p)) RETURN(hipErrorHostMemoryAlreadyRegistered);
	rt.allocations[(u64)p] = {n, n, current_device, Kind::REGISTERED, nullptr, flags};
	memory_add((u64)p, n, "registered host buffer");
	RETURN(hipSuccess);
}
API hipError_t hipHostUnregister(void* p) {
	BEGIN;
	flush_device(current_device);
	auto it = rt.allocations.find((u64)p);
	if (it == rt.allocations.end() || it->second.kind != Kind::REGISTERED) RETURN(hipErrorHostMemoryNotRegistered);
	memory_remove((u64)p);
	rt.allocations.erase(it);
	RETURN(hipSuccess);
}
API hipError_t hipHostGetDevicePointer(void** d, void* h, unsigned) {
	BEGIN;
	Allocation* a = allocation_at(h);
	if (!d || !a || a->kind == Kind::DEVICE) RETURN(hipErrorInvalidValue);
	*d = h;
	RETURN(hipSuccess);
}
API hipError_t hipHostGetFlags(unsigned* flags, void* h) {
	BEGIN;
	auto it = rt.allocations.find((u64)h);
	if (it == rt.allocations.end()) RETURN(hipErrorInvalidValue);
	*flags = it->second.flags;
	RETURN(hipSuccess);
}

API hipError_t hipMemGetInfo(size_t* free, size_t* total) {
	BEGIN;
	if (free) *free = settings().vram - rt.used[current_device];
	if (total) *total = settings().vram;
	RETURN(hipSuccess);
}
API hipError_t hipMemPtrGetInfo(void* p, size_t* n) {
	BEGIN;
	auto it = rt.allocations.find((u64)p);
	if (it == rt.allocations.end()) RETURN(hipErrorInvalidValue);
	*n = it->second.size;
	RETURN(hipSuccess);
}
API hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* n, hipDeviceptr_t p) {
	BEGIN;
	u64 start;
	Allocation* a = allocation_at(p, &start);
	if (!a) RETURN(hipErrorInvalidValue);
	if (base) *base = (void*)start;
	if (n) *n = a->size;
	RETURN(hipSuccess);
}
API hipError_t hipPointerGetAttributes(PtrAttr* out, const void* p) {
	BEGIN;
	Allocation* a = allocation_at(p);
	if (!a) RETURN(hipErrorInvalidValue);
	memset(out, 0, sizeof *out);
	out->type = a->kind == Kind::DEVICE ? hipMemoryTypeDevice : a->kind == Kind::MANAGED ? hipMemoryTypeManaged : hipMemoryTypeHost;
	out->device = a->dev;
	out->devicePointer = (void*)p;
	out->hostPointer = a->kind == Kind::DEVICE ? nullptr : (void*)p;
	out->allocationFlags = a->flags;
	RETURN(hipSuccess);
}
API hipError_t hipMemPrefetchAsync(const void*, size_t, int, hipStream_t) { return hipSuccess; }
API hipError_t hipMemAdvise(const void*, size_t, hipMemoryAdvise, int) { return hipSuccess; }
