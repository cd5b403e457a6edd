// A GPU made of this processor: the functions that package driver binds, of HIP
// or, with -DCUDA, of CUDA, so that the driver's calls, their arguments, their
// order and their thread are checked without a GPU. -DCOMPILER gives the
// compiler's functions instead of the runtime's; its "machine code" is the
// source, and the kernels of the tests are known by name.
//
// Faults are compiled in, one or more:
//   NO_DEVICE        no device is there
//   OLD              a runtime without graphs, cooperative launch and R0600
//   ARCH="..."       the architecture's name (HIP)
//   ODD_LAYOUT       device properties that nobody knows, somewhere an architecture
//   INIT=code        the first call fails
//   ALLOC=code       allocations above 1 MiB fail
//   LOAD=code        code is refused
//   LAUNCH=code      launches fail
//   LOST=n,CODE=code from the n-th launch on everything fails with this code
//   CAPTURE=code     launches cannot be captured
//   HANG             waiting for a stream never returns
//   INTEGRATED       the device shares the processor's memory (HIP)
//   LACKS            a required function is missing
//   BROKEN           the compiler takes nothing
// With ANY, kernels of every name are there, and do nothing.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef CUDA
#define NAME(h, c) c
#else
#define NAME(h, c) h
#endif
#ifndef CODE
#define CODE 719
#endif

enum { OK = 0, INVALID = 1, MEMORY = 2, NO_SUCH_DEVICE = 100, BAD_DEVICE = 101, IMAGE = 200, CONTEXT = 201, HANDLE = 400, NOT_FOUND = 500, NOT_CAPTURABLE = 900 };

#ifdef COMPILER

typedef struct { char *source, *log; } program;
#define R(name) NAME(hiprtc##name, nvrtc##name)

int R(Version)(int *major, int *minor) { *major = NAME(9, 12); *minor = NAME(0, 4); return OK; }
int R(CreateProgram)(program **p, const char *source, const char *name, int n, const char **headers, const char **names) {
	if (!name || n || headers || names) return 3;
	*p = calloc(1, sizeof **p);
	(*p)->source = strdup(source);
	(*p)->log = strdup("");
	return OK;
}
int R(DestroyProgram)(program **p) {
	free((*p)->source);
	free((*p)->log);
	free(*p);
	*p = 0;
	return OK;
}
int R(CompileProgram)(program *p, int n, const char **options) {
	int arch = 0, std = 0, unknown = 0;
	for (int i = 0; i < n; i++) {
		arch |= !strncmp(options[i], NAME("--offload-arch=gfx", "--gpu-architecture=sm_"), NAME(18, 22));
		std |= !strcmp(options[i], "-std=c++17");
		unknown |= strstr(options[i], "gfx000") != 0;
	}
	const char *why = 0;
	if (unknown) why = "error: invalid target ID 'gfx000'";
	if (!arch || !std) why = "error: an option is missing";
	if (strstr(p->source, "undeclared_name")) why = "wrong.hip:1: error: use of undeclared identifier 'undeclared_name'";
#ifdef BROKEN
	why = "fatal error: the compiler is broken";
#endif
	if (!why) return OK;
	free(p->log);
	p->log = strdup(why);
	return 6;
}
int R(GetProgramLogSize)(program *p, size_t *n) { *n = strlen(p->log) + 1; return OK; }
int R(GetProgramLog)(program *p, char *to) { strcpy(to, p->log); return OK; }
int NAME(hiprtcGetCodeSize, nvrtcGetCUBINSize)(program *p, size_t *n) { *n = strlen(p->source) + 5; return OK; }
int NAME(hiprtcGetCode, nvrtcGetCUBIN)(program *p, char *to) { sprintf(to, "\x7f" "ELF%s", p->source); return OK; }
#ifdef CUDA
int nvrtcGetPTXSize(program *p, size_t *n) { return nvrtcGetCUBINSize(p, n); }
int nvrtcGetPTX(program *p, char *to) { return nvrtcGetCUBIN(p, to); }
#endif
const char *R(GetErrorString)(int code) { return code == 6 ? NAME("HIPRTC_ERROR_COMPILATION", "NVRTC_ERROR_COMPILATION") : "OTHER"; }

#else

typedef struct { const char *name; int args; } kernel;
static const kernel kernels[] = {{"arguments", 5}, {"reverse", 1}, {"meet", 3}, {"step", 1}, {"spin", 2}};
typedef struct { const kernel *kernel; } function;
typedef struct { char *code; } module;
typedef struct { double when; } event;
typedef struct { int kind; void *dst, *src; size_t n; const kernel *kernel; unsigned size[7]; uint64_t values[64]; } work;
typedef struct { work *list; int n; } graph;
typedef struct { graph *capture; } stream;
enum { COPY, FILL, LAUNCHED };

static int initialized, launches, lost;
static pthread_t owner;
static int owned;

// Every call that concerns a device has to come from the thread that took it.
static int here(void) {
	if (!initialized || !owned || !pthread_equal(owner, pthread_self())) return CONTEXT;
	return lost;
}
#define HERE { int e = here(); if (e) return e; }

// Waiting may happen on any thread; CUDA wants its context current there.
static __thread int joined;
static int anywhere(void) {
	if (!initialized || !owned || NAME(0, !joined)) return CONTEXT;
	return lost;
}
#define ANYWHERE { int e = anywhere(); if (e) return e; }

static int own(void) {
	if (!initialized) return 3;
	joined = 1;
#ifdef CUDA
	if (owned) return lost; // another thread joins, to wait
#endif
	owner = pthread_self();
	owned = 1;
	return lost;
}

int NAME(hipInit, cuInit)(unsigned flags) {
#ifdef INIT
	return INIT;
#endif
	initialized = flags == 0;
	return flags ? INVALID : OK;
}
int NAME(hipRuntimeGetVersion, cuDriverGetVersion)(int *v) {
#ifdef OLD
	*v = NAME(50013601, 11000);
#else
	*v = NAME(60342131, 12040);
#endif
	return OK;
}
int NAME(hipGetDeviceCount, cuDeviceGetCount)(int *n) {
#ifdef NO_DEVICE
	*n = 0;
	return NAME(NO_SUCH_DEVICE, OK);
#endif
	*n = 1;
	return initialized ? OK : 3;
}
int NAME(hipDeviceGet, cuDeviceGet)(int *device, int ordinal) {
	*device = 7; // no ordinal: what takes one must not be given the other, and the other way round
	return ordinal == 0 ? OK : BAD_DEVICE;
}
int NAME(hipDeviceGetName, cuDeviceGetName)(char *to, int n, int device) {
	snprintf(to, n, "Fake GPU");
	return device == 7 ? OK : BAD_DEVICE;
}
int NAME(hipDeviceGetAttribute, cuDeviceGetAttribute)(int *v, int id, int device) {
	if (device != 7) return BAD_DEVICE;
	switch (id) {
	case NAME(56, 1): *v = 1024; return OK;
	case NAME(63, 16): *v = 4; return OK;
	case NAME(74, 97): *v = 65536; return OK;
	case NAME(87, 10): *v = 32; return OK;
	case NAME(10, 95): *v = 1; return OK;
#ifdef INTEGRATED
	case 16: *v = 1; return OK;
#endif
#ifdef CUDA
	case 75: *v = 9; return OK;
	case 76: *v = 0; return OK;
#endif
	}
	return INVALID;
}
int NAME(hipDeviceTotalMem, cuDeviceTotalMem_v2)(size_t *n, int device) { *n = 1 << 30; return device == 7 ? OK : BAD_DEVICE; }
int NAME(hipDeviceGetPCIBusId, cuDeviceGetPCIBusId)(char *to, int n, int device) { snprintf(to, n, "0000:03:00.0"); return device == 7 ? OK : BAD_DEVICE; }
#ifdef CUDA
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &owner; owned = 0; return device == 7 ? OK : BAD_DEVICE; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device == 7 ? OK : BAD_DEVICE; }
int cuCtxSetCurrent(void *context) { return context == &owner ? own() : CONTEXT; }
int cuGetErrorName(int code, const char **name) {
	*name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_OTHER";
	return OK;
}
#else
int hipSetDevice(int ordinal) { return ordinal == 0 ? own() : BAD_DEVICE; }
const char *hipGetErrorName(int code) {
	return code == 2 ? "hipErrorOutOfMemory" : code == 100 ? "hipErrorNoDevice" : code == 209 ? "hipErrorNoBinaryForGpu" : code == 719 ? "hipErrorLaunchFailure" : "hipErrorOther";
}
#ifndef ARCH
#define ARCH "gfx1100"
#endif
// Both layouts of hipDeviceProp_t; see hip.go.
static int layout(char *p, int ordinal, int size, int at) {
	memset(p, 0, size);
	strcpy(p, "Fake gfx GPU"); // a name that says gfx must not be taken for the architecture
#ifdef ODD_LAYOUT
	at += 64;
#endif
	strcpy(p + at, ARCH);
	return ordinal == 0 ? OK : BAD_DEVICE;
}
int hipGetDeviceProperties(char *p, int ordinal) { return layout(p, ordinal, 792, 396); }
#ifndef OLD
int hipGetDevicePropertiesR0600(char *p, int ordinal) { return layout(p, ordinal, 1472, 1160); }
#endif
#endif

int NAME(hipMemGetInfo, cuMemGetInfo_v2)(size_t *free, size_t *total) { HERE *free = 1 << 29; *total = 1 << 30; return OK; }
int NAME(hipMalloc, cuMemAlloc_v2)(void **p, size_t n) {
	HERE
#ifdef ALLOC
	if (n > 1 << 20) return ALLOC;
#endif
	if (n > 1 << 30) return MEMORY;
	*p = malloc(n);
	return OK;
}
int NAME(hipFree, cuMemFree_v2)(void *p) { HERE free(p); return OK; }
// Of the host's memory, what the device may cache (0x80000000) is mapped for kernels; the last of it is known.
static void *mapped;
int NAME(hipHostMalloc, cuMemHostAlloc)(void **p, size_t n, unsigned flags) {
	HERE
	*p = malloc(n);
	if (!*p) return MEMORY;
	if (flags == NAME(0x80000000, 2)) mapped = *p;
	return flags && *p != mapped ? INVALID : OK;
}
int NAME(hipHostFree, cuMemFreeHost)(void *p) { HERE if (p == mapped) mapped = 0; free(p); return OK; }
#ifndef CUDA
int hipHostGetDevicePointer(void **d, void *p, unsigned flags) { HERE *d = p; return p == mapped && !flags ? OK : INVALID; }
#endif

int NAME(hipStreamCreateWithFlags, cuStreamCreate)(stream **s, unsigned flags) { HERE *s = calloc(1, sizeof **s); return flags == 1 ? OK : INVALID; }
int NAME(hipStreamDestroy, cuStreamDestroy_v2)(stream *s) { HERE free(s); return OK; }
int NAME(hipStreamSynchronize, cuStreamSynchronize)(stream *s) {
	ANYWHERE
#ifdef HANG
	for (;;) sleep(1);
#endif
	return s->capture ? NOT_CAPTURABLE : OK;
}
int NAME(hipEventCreateWithFlags, cuEventCreate)(event **e, unsigned flags) { HERE *e = calloc(1, sizeof **e); return flags ? INVALID : OK; }
int NAME(hipEventDestroy, cuEventDestroy_v2)(event *e) { HERE free(e); return OK; }
int NAME(hipEventRecord, cuEventRecord)(event *e, stream *s) { HERE static double clock; e->when = ++clock; return s->capture ? NOT_CAPTURABLE : OK; }
int NAME(hipEventSynchronize, cuEventSynchronize)(event *e) { ANYWHERE return e->when ? OK : INVALID; }
int NAME(hipStreamWaitEvent, cuStreamWaitEvent)(stream *s, event *e, unsigned flags) { HERE return s && e->when && !flags ? OK : INVALID; }
int NAME(hipEventElapsedTime, cuEventElapsedTime)(float *ms, event *a, event *b) { HERE *ms = (float)(b->when - a->when); return OK; }

int NAME(hipModuleLoadData, cuModuleLoadData)(module **m, const char *code) {
	HERE
#ifdef LOAD
	return LOAD;
#endif
	if (memcmp(code, "\x7f" "ELF", 4)) return IMAGE;
	*m = calloc(1, sizeof **m);
	(*m)->code = strdup(code);
	return OK;
}
int NAME(hipModuleUnload, cuModuleUnload)(module *m) { HERE free(m->code); free(m); return OK; }
int NAME(hipModuleGetFunction, cuModuleGetFunction)(function **f, module *m, const char *name) {
	HERE
	for (unsigned i = 0; i < sizeof kernels / sizeof *kernels; i++)
		if (!strcmp(kernels[i].name, name) && strstr(m->code, name)) {
			*f = calloc(1, sizeof **f);
			(*f)->kernel = &kernels[i];
			return OK;
		}
#ifdef ANY
	static const kernel any = {"any", 0};
	*f = calloc(1, sizeof **f);
	(*f)->kernel = &any;
	return OK;
#endif
	return NOT_FOUND;
}
int NAME(hipFuncGetAttribute, cuFuncGetAttribute)(int *v, int id, function *f) {
	HERE
	*v = id == 0 ? 1024 : id == 4 ? 16 : 0;
	return f->kernel ? OK : HANDLE;
}

// run executes a kernel of the tests for one thread of one block.
static void run(const work *w) {
	const unsigned *s = w->size, blocks = s[0] * s[1] * s[2], threads = s[3] * s[4] * s[5];
	const uint64_t *v = w->values;
	const char *name = w->kernel->name;
	unsigned *out = (unsigned *)(uintptr_t)v[0];
	for (unsigned b = 0; b < blocks; b++)
		for (unsigned i = 0; i < threads; i++)
			if (!strcmp(name, "arguments")) {
				float scale;
				memcpy(&scale, &v[2], 4);
				((float *)out)[i] = i * scale + (int)v[1] + (float)((int64_t)v[3] >> 32) + (int)v[4];
			} else if (!strcmp(name, "reverse"))
				out[b * threads + i] = s[6] == threads * 4 ? b * threads + threads - 1 - i : 0;
			else if (!strcmp(name, "meet"))
				out[b] = (unsigned)v[2];
			else if (!strcmp(name, "step"))
				out[i]++;
			else if (!strcmp(name, "spin"))
				out[0] = out[1] = 1;
}

static void perform(const work *w) {
	if (w->kind == COPY) memmove(w->dst, w->src, w->n);
	if (w->kind == FILL) memset(w->dst, (int)w->values[0], w->n);
	if (w->kind == LAUNCHED) run(w);
}

// submit does work at once, or keeps it where the stream is captured.
static int submit(stream *s, const work *w) {
	if (!s->capture) {
		perform(w);
		return OK;
	}
	s->capture->list = realloc(s->capture->list, (s->capture->n + 1) * sizeof *w);
	s->capture->list[s->capture->n++] = *w;
	return OK;
}
static int copy(void *dst, const void *src, size_t n, stream *s) {
	work w = {.kind = COPY, .dst = dst, .src = (void *)src, .n = n};
	return submit(s, &w);
}
int NAME(hipMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)(void *d, const void *h, size_t n, stream *s) { HERE return copy(d, h, n, s); }
int NAME(hipMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)(void *h, const void *d, size_t n, stream *s) { HERE return copy(h, d, n, s); }
int NAME(hipMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)(void *d, const void *e, size_t n, stream *s) { HERE return copy(d, e, n, s); }
int NAME(hipMemsetD8Async, cuMemsetD8Async)(void *d, unsigned char b, size_t n, stream *s) {
	HERE
	work w = {.kind = FILL, .dst = d, .n = n, .values = {b}};
	return submit(s, &w);
}

static int launch(function *f, unsigned *size, stream *s, void **params) {
	HERE
	launches++;
#ifdef LOST
	if (launches >= LOST) return lost = CODE;
#endif
#ifdef LAUNCH
	return LAUNCH;
#endif
#ifdef CAPTURE
	if (s->capture) return CAPTURE;
#endif
	work w = {.kind = LAUNCHED, .kernel = f->kernel};
	memcpy(w.size, size, sizeof w.size);
	for (int i = 0; i < f->kernel->args; i++) w.values[i] = *(uint64_t *)params[i];
	return submit(s, &w);
}
#ifndef LACKS
int NAME(hipModuleLaunchKernel, cuLaunchKernel)(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned lds, stream *s, void **params, void **extra) {
	unsigned size[7] = {gx, gy, gz, bx, by, bz, lds};
	return extra ? INVALID : launch(f, size, s, params);
}
#endif
#if defined(CUDA) && !defined(OLD)
typedef struct {
	unsigned id, pad;
	int value[16];
} launch_attribute;
typedef struct {
	unsigned size[7];
	stream *stream;
	launch_attribute *attributes;
	unsigned count;
} launch_config;
int cuLaunchKernelEx(launch_config *c, function *f, void **params, void **extra) {
	if (extra || c->count != 1 || c->attributes->id != 6 || c->attributes->value[0] != 1) return INVALID;
	return launch(f, c->size, c->stream, params);
}
#endif
#ifndef OLD
int NAME(hipModuleLaunchCooperativeKernel, cuLaunchCooperativeKernel)(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned lds, stream *s, void **params) {
	unsigned size[7] = {gx, gy, gz, bx, by, bz, lds};
	return launch(f, size, s, params);
}
int NAME(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *n, function *f, int threads, size_t lds) {
	HERE
	*n = 2;
	return f->kernel && threads > 0 && lds < 65536 ? OK : INVALID;
}
int NAME(hipStreamBeginCapture, cuStreamBeginCapture_v2)(stream *s, int mode) { HERE s->capture = calloc(1, sizeof(graph)); return mode == 2 ? OK : INVALID; }
int NAME(hipStreamEndCapture, cuStreamEndCapture)(stream *s, graph **g) { HERE *g = s->capture; s->capture = 0; return *g ? OK : INVALID; }
int NAME(hipGraphInstantiateWithFlags, cuGraphInstantiateWithFlags)(graph **e, graph *g, unsigned long long flags) {
	HERE
	*e = calloc(1, sizeof **e);
	(*e)->n = g->n;
	(*e)->list = malloc(g->n * sizeof *g->list);
	memcpy((*e)->list, g->list, g->n * sizeof *g->list);
	return flags ? INVALID : OK;
}
int NAME(hipGraphLaunch, cuGraphLaunch)(graph *g, stream *s) {
	HERE
	launches += g->n;
#ifdef LOST
	if (launches >= LOST) return lost = CODE;
#endif
	for (int i = 0; i < g->n; i++) submit(s, &g->list[i]);
	return OK;
}
int NAME(hipGraphDestroy, cuGraphDestroy)(graph *g) { HERE free(g->list); free(g); return OK; }
int NAME(hipGraphExecDestroy, cuGraphExecDestroy)(graph *g) { HERE free(g->list); free(g); return OK; }
#endif
#endif
