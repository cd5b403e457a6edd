// Copies and fills, checked against the allocations and against the direction that the caller states.
#include "hip_state.h"
#include <cstdio>

typedef unsigned long long ull;

// n bytes at a pointer, and what kind of memory they lie in.
struct Place {
	u8* bytes;
	bool device, pinned; // neither: the host's pageable memory
	hipError_t error;
};
static Place find(const void* p, size_t n) {
	const Runtime& rt = runtime();
	u64 start, size;
	if (Allocation* a = allocation_at(p, &start)) {
		bool device = a->kind == Kind::DEVICE;
		Place at{device ? rt.arena.bytes((u64)p) : (u8*)p, device, !device, hipSuccess};
		if ((u64)p + n > start + a->size) {
			fprintf(stderr, "[amdemu] copy/set of %zu bytes at offset %llu overruns allocation of %llu bytes\n", n, (ull)((u64)p - start), (ull)a->size);
			at.error = hipErrorInvalidValue;
		}
		return at;
	}
	if (memory_find((u64)p, &start, &size)) // a variable of a module
		return {(u8*)p, true, false, (u64)p + n > start + size ? hipErrorInvalidValue : hipSuccess};
	if (rt.arena.holds((u64)p) && rt.arena.hidden()) {
		fprintf(stderr, "[amdemu] pointer %p is not inside a live device allocation\n", p);
		return {(u8*)p, false, false, hipErrorInvalidValue};
	}
	return {(u8*)p, false, false, hipSuccess};
}

static hipError_t check_direction(const Place& to, const Place& from, hipMemcpyKind kind, const void* d, const void* s) {
	const bool to_ok = to.device || to.pinned, from_ok = from.device || from.pinned;
	if (kind == hipMemcpyHostToDevice && !to_ok) {
		fprintf(stderr, "[amdemu] HtoD copy: destination %p is not device memory\n", d);
		return hipErrorInvalidValue;
	}
	if (kind == hipMemcpyDeviceToHost && !from_ok) {
		fprintf(stderr, "[amdemu] DtoH copy: source %p is not device memory\n", s);
		return hipErrorInvalidValue;
	}
	if (kind == hipMemcpyDeviceToDevice && !(to_ok && from_ok)) return hipErrorInvalidValue;
	return (unsigned)kind > hipMemcpyDefault ? hipErrorInvalidMemcpyDirection : hipSuccess;
}

// Deferred, a copy from pageable memory takes the bytes at once, as a runtime's
// staging does, and a copy to pageable memory ends before the call returns.
static hipError_t copy(void* d, const void* s, size_t n, hipMemcpyKind kind, Stream* stream, bool async) {
	if (!n) return hipSuccess;
	if (!d || !s) return hipErrorInvalidValue;
	Place to = find(d, n), from = find(s, n);
	if (to.error) return to.error;
	if (from.error) return from.error;
	if (hipError_t e = check_direction(to, from, kind, d, s)) return e;
	u8 *dst = to.bytes, *src = from.bytes;
	auto move = [=] {
		memmove(dst, src, n);
		return 0;
	};
	if (stream->capture || !settings().defer) return enqueue(stream, move);
	TaskP t;
	if (!from.device && !from.pinned) {
		auto staged = std::make_shared<std::vector<u8>>(src, src + n);
		enqueue(
		    stream,
		    [=] {
			    memcpy(dst, staged->data(), n);
			    return 0;
		    },
		    &t);
	} else {
		enqueue(stream, move, &t);
	}
	if (!async || (!to.device && !to.pinned)) complete(t);
	return runtime().sticky;
}

static hipError_t copy_rows(void* d, size_t d_pitch, const void* s, size_t s_pitch, size_t width, size_t rows, hipMemcpyKind kind, Stream* stream, bool async) {
	if (width > d_pitch || width > s_pitch) return hipErrorInvalidValue;
	for (size_t i = 0; i < rows; i++)
		if (hipError_t e = copy((u8*)d + i * d_pitch, (const u8*)s + i * s_pitch, width, kind, stream, async)) return e;
	return hipSuccess;
}

// count elements of 1, 2 or 4 bytes.
static hipError_t fill(void* d, u32 v, int element, size_t count, hipStream_t s, bool async) {
	Stream* stream = stream_of(s);
	if (!stream) return hipErrorInvalidHandle;
	size_t n = count * element;
	if (!n) return hipSuccess;
	Place to = find(d, n);
	if (to.error) return to.error;
	if (!to.device && !to.pinned) {
		fprintf(stderr, "[amdemu] memset of non-device pointer %p\n", d);
		return hipErrorInvalidValue;
	}
	u8* p = to.bytes;
	auto set = [=] {
		for (size_t i = 0; element > 1 && i < count; i++) memcpy(p + i * element, &v, element);
		if (element == 1) memset(p, (int)v, n);
		return 0;
	};
	if (stream->capture) return enqueue(stream, set);
	TaskP t;
	enqueue(stream, set, &t);
	if (!async) complete(t);
	return runtime().sticky;
}

#define COPY(d, s, n, kind, stream, async) \
	do { \
		Stream* at_ = stream_of(stream); \
		if (!at_) RETURN(hipErrorInvalidHandle); \
		RETURN(copy((void*)(d), (const void*)(s), n, kind, at_, async)); \
	} while (0)

API hipError_t hipMemcpy(void* d, const void* s, size_t n, hipMemcpyKind kind) {
	BEGIN;
	NOT_IN_CAPTURE;
	COPY(d, s, n, kind, nullptr, false);
}
API hipError_t hipMemcpyWithStream(void* d, const void* s, size_t n, hipMemcpyKind kind, hipStream_t stream) {
	BEGIN;
	COPY(d, s, n, kind, stream, false);
}
API hipError_t hipMemcpyAsync(void* d, const void* s, size_t n, hipMemcpyKind kind, hipStream_t stream) {
	BEGIN;
	COPY(d, s, n, kind, stream, true);
}
API hipError_t hipMemcpyHtoD(hipDeviceptr_t d, void* s, size_t n) { return hipMemcpy(d, s, n, hipMemcpyHostToDevice); }
API hipError_t hipMemcpyDtoH(void* d, hipDeviceptr_t s, size_t n) { return hipMemcpy(d, s, n, hipMemcpyDeviceToHost); }
API hipError_t hipMemcpyDtoD(hipDeviceptr_t d, hipDeviceptr_t s, size_t n) { return hipMemcpy(d, s, n, hipMemcpyDeviceToDevice); }
API hipError_t hipMemcpyPeer(void* d, int, const void* s, int, size_t n) { return hipMemcpy(d, s, n, hipMemcpyDeviceToDevice); }
API hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t d, void* s, size_t n, hipStream_t stream) { return hipMemcpyAsync(d, s, n, hipMemcpyHostToDevice, stream); }
API hipError_t hipMemcpyDtoHAsync(void* d, hipDeviceptr_t s, size_t n, hipStream_t stream) { return hipMemcpyAsync(d, s, n, hipMemcpyDeviceToHost, stream); }
API hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t d, hipDeviceptr_t s, size_t n, hipStream_t stream) { return hipMemcpyAsync(d, s, n, hipMemcpyDeviceToDevice, stream); }
API hipError_t hipMemcpyPeerAsync(void* d, int, const void* s, int, size_t n, hipStream_t stream) { return hipMemcpyAsync(d, s, n, hipMemcpyDeviceToDevice, stream); }
API hipError_t hipMemcpy2D(void* d, size_t d_pitch, const void* s, size_t s_pitch, size_t width, size_t rows, hipMemcpyKind kind) {
	BEGIN;
	NOT_IN_CAPTURE;
	RETURN(copy_rows(d, d_pitch, s, s_pitch, width, rows, kind, rt.null_streams[current_device], false));
}
API hipError_t hipMemcpy2DAsync(void* d, size_t d_pitch, const void* s, size_t s_pitch, size_t width, size_t rows, hipMemcpyKind kind, hipStream_t stream) {
	BEGIN;
	Stream* at = stream_of(stream);
	if (!at) RETURN(hipErrorInvalidHandle);
	RETURN(copy_rows(d, d_pitch, s, s_pitch, width, rows, kind, at, true));
}

API hipError_t hipMemset(void* d, int v, size_t n) {
	BEGIN;
	NOT_IN_CAPTURE;
	RETURN(fill(d, (u8)v, 1, n, nullptr, false));
}
API hipError_t hipMemsetAsync(void* d, int v, size_t n, hipStream_t s) {
	BEGIN;
	RETURN(fill(d, (u8)v, 1, n, s, true));
}
#define FILL(bits, type) \
	API hipError_t hipMemsetD##bits(hipDeviceptr_t d, type v, size_t n) { \
		BEGIN; \
		RETURN(fill(d, (u32)v, bits / 8, n, nullptr, false)); \
	} \
	API hipError_t hipMemsetD##bits##Async(hipDeviceptr_t d, type v, size_t n, hipStream_t s) { \
		BEGIN; \
		RETURN(fill(d, (u32)v, bits / 8, n, s, true)); \
	}
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, int)
API hipError_t hipMemset2D(void* d, size_t pitch, int v, size_t width, size_t rows) {
	BEGIN;
	for (size_t i = 0; i < rows; i++)
		if (hipError_t e = fill((u8*)d + i * pitch, (u8)v, 1, width, nullptr, false)) RETURN(e);
	RETURN(hipSuccess);
}
