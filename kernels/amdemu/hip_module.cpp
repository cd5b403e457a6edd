// Modules, kernels and their launch.
#include "hip_state.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>

typedef unsigned long long ull;
int compute_units();

enum { LDS_BYTES = 65536, MOST_THREADS = 1024 };

static void log_module(const Program& p, double ms) {
	fprintf(stderr, "[amdemu] module %s: %zu kernels, %zu instructions, load %.1f ms\n", p.arch.c_str(), p.kernels.size(), p.code->instructions.size(), ms);
	for (const auto& [name, k] : p.kernels)
		fprintf(stderr, "[amdemu]   %s: vgpr %u sgpr %u lds %u scratch %u vspill %u sspill %u wave%u\n", name.c_str(), k->vgprs, k->sgprs, k->lds, k->priv,
		    k->vspill, k->sspill, k->wave);
}

static hipError_t load(hipModule_t* m, const void* image, size_t n) {
	if (!m || !image) return hipErrorInvalidValue;
	const double began = now_ms();
	std::string err;
	std::unique_ptr<Program> p(load_program(image, n, err));
	if (!p) {
		fprintf(stderr, "[amdemu] hipModuleLoadData: %s\n", err.c_str());
		return hipErrorInvalidImage;
	}
	std::string arch = p->arch.substr(0, p->arch.find(':'));
	if (arch != settings().arch) {
		fprintf(stderr, "[amdemu] code object is for %s, device is %s\n", arch.c_str(), settings().arch.c_str());
		return hipErrorNoBinaryForGpu;
	}
	if (settings().log) log_module(*p, now_ms() - began);
	auto* x = new Module{p.release(), current_device};
	runtime().modules.insert(x);
	for (auto& k : x->p->kernels) runtime().kernels[k.second.get()] = x;
	*m = (hipModule_t)x;
	return hipSuccess;
}

API hipError_t hipModuleLoadData(hipModule_t* m, const void* image) {
	BEGIN;
	RETURN(load(m, image, (size_t)-1));
}
API hipError_t hipModuleLoadDataEx(hipModule_t* m, const void* image, unsigned, hipJitOption*, void**) { return hipModuleLoadData(m, image); }
API hipError_t hipModuleLoad(hipModule_t* m, const char* path) {
	BEGIN;
	FILE* f = fopen(path, "rb");
	if (!f) RETURN(hipErrorFileNotFound);
	std::vector<u8> image;
	u8 part[65536];
	size_t n;
	while ((n = fread(part, 1, sizeof part, f)) > 0) image.insert(image.end(), part, part + n);
	fclose(f);
	RETURN(load(m, image.data(), image.size()));
}
API hipError_t hipModuleUnload(hipModule_t m) {
	BEGIN;
	Module* x = (Module*)m;
	if (!rt.modules.count(x)) RETURN(hipErrorInvalidResourceHandle);
	flush_device(x->dev);
	for (auto& k : x->p->kernels) rt.kernels.erase(k.second.get());
	rt.modules.erase(x);
	delete x->p;
	delete x;
	RETURN(hipSuccess);
}
API hipError_t hipModuleGetFunction(hipFunction_t* f, hipModule_t m, const char* name) {
	BEGIN;
	Module* x = (Module*)m;
	if (!f || !name) RETURN(hipErrorInvalidValue);
	if (!rt.modules.count(x)) RETURN(hipErrorInvalidResourceHandle);
	auto it = x->p->kernels.find(name);
	if (it == x->p->kernels.end()) RETURN(hipErrorNotFound);
	*f = (hipFunction_t)it->second.get();
	RETURN(hipSuccess);
}
API hipError_t hipModuleGetGlobal(hipDeviceptr_t* d, size_t* bytes, hipModule_t m, const char* name) {
	BEGIN;
	Module* x = (Module*)m;
	if (!rt.modules.count(x)) RETURN(hipErrorInvalidResourceHandle);
	auto it = x->p->vars.find(name);
	if (it == x->p->vars.end()) RETURN(hipErrorNotFound);
	if (d) *d = (hipDeviceptr_t)it->second.first;
	if (bytes) *bytes = it->second.second;
	RETURN(hipSuccess);
}

struct Dim {
	u32 x, y, z;
};

static hipError_t check_launch(const Kernel& k, Dim grid, Dim block, u32 dynamic_lds) {
	if (!grid.x || !grid.y || !grid.z) return hipErrorInvalidValue;
	if (!block.x || !block.y || !block.z) return hipErrorInvalidConfiguration;
	if ((u64)grid.x * block.x > 0xffffffffull || (u64)grid.y * block.y > 0xffffffffull || (u64)grid.z * block.z > 0xffffffffull) return hipErrorInvalidConfiguration;
	const u64 threads = (u64)block.x * block.y * block.z;
	if (dynamic_lds > LDS_BYTES || threads > MOST_THREADS) return hipErrorInvalidValue;
	if (threads > k.maxwg) {
		fprintf(stderr, "[amdemu] launch of %s with %llu threads is larger than launch bounds %u\n", k.name.c_str(), (ull)threads, k.maxwg);
		return hipErrorLaunchFailure;
	}
	if (k.reqd[0] && (k.reqd[0] != block.x || k.reqd[1] != block.y || k.reqd[2] != block.z)) return hipErrorLaunchFailure;
	if ((u64)k.lds + dynamic_lds > LDS_BYTES) {
		fprintf(stderr, "[amdemu] %s: LDS %u + dynamic %u exceeds %d\n", k.name.c_str(), k.lds, dynamic_lds, LDS_BYTES);
		return hipErrorLaunchFailure;
	}
	return hipSuccess;
}

static bool hidden(const Argument& a) { return a.kind.compare(0, 7, "hidden_") == 0; }

// Arguments as a list of pointers to values.
static hipError_t take_values(const Kernel& k, void** values, u8* out) {
	int i = 0;
	for (const Argument& a : k.args) {
		if (hidden(a)) continue;
		if (!values[i]) return hipErrorInvalidValue;
		memcpy(out + a.off, values[i++], a.size);
		if (a.kind == "global_buffer" && settings().log > 1) fprintf(stderr, "[amdemu]    arg @%u = %#llx\n", a.off, (ull)*(u64*)(out + a.off));
	}
	return hipSuccess;
}

// Arguments as one buffer: a list of markers with their values.
static hipError_t take_buffer(const Kernel& k, void** list, size_t needed, u8* out) {
	void* buffer = nullptr;
	size_t size = 0;
	for (int i = 0; list[i] != LAUNCH_PARAM_END; i += 2) {
		if (list[i] == LAUNCH_PARAM_POINTER)
			buffer = list[i + 1];
		else if (list[i] == LAUNCH_PARAM_SIZE)
			size = *(size_t*)list[i + 1];
		else
			return hipErrorInvalidValue;
	}
	if (!buffer && needed) return hipErrorInvalidValue;
	if (size < needed) {
		fprintf(stderr, "[amdemu] %s: argument buffer has %zu bytes, kernel needs %zu\n", k.name.c_str(), size, needed);
		if (!settings().lax_arguments) return hipErrorInvalidValue;
	}
	if (buffer) memcpy(out, buffer, std::min(size, needed));
	return hipSuccess;
}

// What the compiler has the runtime pass on.
static void set_hidden(const Kernel& k, Dim grid, Dim block, u32 dynamic_lds, u8* out) {
	const std::unordered_map<std::string, u64> values = {{"hidden_block_count_x", grid.x}, {"hidden_block_count_y", grid.y}, {"hidden_block_count_z", grid.z},
	    {"hidden_group_size_x", block.x}, {"hidden_group_size_y", block.y}, {"hidden_group_size_z", block.z},
	    {"hidden_grid_dims", grid.z * block.z > 1 ? 3 : grid.y * block.y > 1 ? 2 : 1}, {"hidden_dynamic_lds_size", dynamic_lds}, {"hidden_private_base", 0x00020000},
	    {"hidden_shared_base", 0x00010000}};
	for (const Argument& a : k.args) {
		if (!hidden(a)) continue;
		auto it = values.find(a.kind);
		u64 v = it == values.end() ? 0 : it->second;
		memcpy(out + a.off, &v, std::min<u32>(a.size, 8));
	}
}

// Like hardware, a launch succeeds; a fault is reported at a later synchronisation, and stays.
static int run(Kernel* k, const LaunchConfig& c) {
	std::string err;
	LaunchStats stats;
	const double began = now_ms();
	int code = run_grid(k, c, err, &stats);
	const double ms = now_ms() - began;
	if (code) fprintf(stderr, "%s\n", err.c_str());
	if (code && settings().abort_on_fault) abort();
	if (settings().log)
		fprintf(stderr, "[amdemu] %s <<<(%u,%u,%u),(%u,%u,%u),%u>>> %.3f ms %llu wave-inst (%.1f M/s)%s\n", k->name.c_str(), c.grid[0], c.grid[1], c.grid[2],
		    c.block[0], c.block[1], c.block[2], c.dynlds, ms, (ull)stats.winsts, stats.winsts / ms / 1e3, code ? " FAULT" : "");
	return code;
}

static hipError_t launch(hipFunction_t f, Dim grid, Dim block, u32 dynamic_lds, hipStream_t s, void** values, void** list, bool cooperative) {
	Runtime& rt = runtime();
	Stream* stream = stream_of(s);
	Kernel* k = (Kernel*)f;
	if (!stream) return hipErrorInvalidHandle;
	if (!k) return hipErrorInvalidImage;
	auto module = rt.kernels.find(k);
	if (module == rt.kernels.end()) return hipErrorInvalidHandle;
	if (module->second->dev != stream->dev) {
		fprintf(stderr, "[amdemu] kernel %s was loaded on device %d, stream is on device %d\n", k->name.c_str(), module->second->dev, stream->dev);
		return hipErrorInvalidDevice;
	}
	if (values && list) return hipErrorInvalidValue;
	if (hipError_t e = check_launch(*k, grid, block, dynamic_lds)) return e;

	auto arguments = std::make_shared<std::vector<u64>>((k->kernarg + 64 + 7) / 8, ~0ull);
	u8* out = (u8*)arguments->data();
	size_t needed = 0;
	for (const Argument& a : k->args)
		if (!hidden(a)) needed = std::max<size_t>(needed, a.off + a.size);
	if (needed && !values && !list) return hipErrorInvalidValue;
	hipError_t e = values ? take_values(*k, values, out) : list ? take_buffer(*k, list, needed, out) : hipSuccess;
	if (e) return e;
	set_hidden(*k, grid, block, dynamic_lds, out);

	const int dev = stream->dev;
	enqueue(stream, [=] {
		Unlocked others; // kernels of several devices run beside one another, and may wait for one another
		return run(k, LaunchConfig{{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, dynamic_lds, (const u8*)arguments->data(), cooperative, dev});
	});
	return hipSuccess;
}

API hipError_t hipModuleLaunchKernel(hipFunction_t f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 lds, hipStream_t s, void** values, void** list) {
	BEGIN;
	RETURN(launch(f, {gx, gy, gz}, {bx, by, bz}, lds, s, values, list, false));
}
API hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 lds, hipStream_t s, void** values) {
	BEGIN;
	RETURN(launch(f, {gx, gy, gz}, {bx, by, bz}, lds, s, values, nullptr, true));
}
// The grid in threads.
API hipError_t hipExtModuleLaunchKernel(hipFunction_t f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, size_t lds, hipStream_t s, void** values, void** list,
    hipEvent_t, hipEvent_t, u32) {
	BEGIN;
	if (!bx || !by || !bz || gx % bx || gy % by || gz % bz) RETURN(hipErrorInvalidConfiguration);
	RETURN(launch(f, {gx / bx, gy / by, gz / bz}, {bx, by, bz}, (u32)lds, s, values, list, false));
}
API hipError_t hipHccModuleLaunchKernel(hipFunction_t f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, size_t lds, hipStream_t s, void** values, void** list,
    hipEvent_t a, hipEvent_t b) {
	return hipExtModuleLaunchKernel(f, gx, gy, gz, bx, by, bz, lds, s, values, list, a, b, 0);
}

API hipError_t hipFuncGetAttribute(int* v, hipFunction_attribute a, hipFunction_t f) {
	BEGIN;
	Kernel* k = (Kernel*)f;
	if (!v || !rt.kernels.count(k)) RETURN(hipErrorInvalidResourceHandle);
	switch (a) {
	case HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *v = (int)k->maxwg; break;
	case HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *v = (int)k->lds; break;
	case HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *v = (int)k->priv; break;
	case HIP_FUNC_ATTRIBUTE_NUM_REGS: *v = (int)k->vgprs; break;
	case HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *v = LDS_BYTES - (int)k->lds; break;
	case HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
	case HIP_FUNC_ATTRIBUTE_PTX_VERSION:
	case HIP_FUNC_ATTRIBUTE_BINARY_VERSION: *v = 0; break;
	default: RETURN(hipErrorInvalidValue);
	}
	RETURN(hipSuccess);
}
API hipError_t hipFuncSetAttribute(const void*, hipFuncAttribute, int) { return hipSuccess; }
API hipError_t hipFuncSetCacheConfig(const void*, hipFuncCache_t) { return hipSuccess; }
API hipError_t hipFuncSetSharedMemConfig(const void*, hipSharedMemConfig) { return hipSuccess; }

// Blocks that a compute unit holds, by registers and LDS, roughly: no more than an answer.
static int blocks_per_unit(const Kernel& k, int threads, size_t dynamic_lds) {
	const bool narrow = k.wave == 32; // RDNA: a work-group processor
	const int waves = (threads + (int)k.wave - 1) / (int)k.wave, step = narrow ? 24 : 8, file = narrow ? 1536 : 512;
	const int registers = (std::max<int>((int)k.vgprs, 1) + step - 1) / step * step;
	const int by_registers = std::min(narrow ? 16 : 8, file / registers) * 4 / waves;
	const int lds = (int)(k.lds + dynamic_lds), by_lds = lds ? (narrow ? 2 : 1) * LDS_BYTES / lds : 1 << 20;
	return std::max(0, std::min({by_registers, by_lds, 32}));
}
API hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* n, hipFunction_t f, int threads, size_t lds) {
	BEGIN;
	if (!n || !rt.kernels.count((Kernel*)f) || threads <= 0) RETURN(hipErrorInvalidValue);
	*n = blocks_per_unit(*(Kernel*)f, threads, lds);
	RETURN(hipSuccess);
}
API hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, hipFunction_t f, int threads, size_t lds, unsigned) {
	return hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, lds);
}
API hipError_t hipModuleOccupancyMaxPotentialBlockSize(int* grid, int* block, hipFunction_t f, size_t lds, int) {
	BEGIN;
	if (!rt.kernels.count((Kernel*)f)) RETURN(hipErrorInvalidValue);
	*block = (int)std::min<u32>(256, ((Kernel*)f)->maxwg);
	*grid = blocks_per_unit(*(Kernel*)f, *block, lds) * compute_units();
	RETURN(hipSuccess);
}
