package driver

import (
	"strconv"
	"strings"

	"github.com/nstf/nstf/kernels/hip"
)

// cudaSymbols is what is wanted of libcuda. The names with _v2 are what the
// plain names of cuda.h have meant since CUDA 4.
var cudaSymbols = []symbol{
	{func(p *procs) *proc { return &p.init }, []string{"cuInit"}, true},
	{func(p *procs) *proc { return &p.runtimeVersion }, []string{"cuDriverGetVersion"}, true},
	{func(p *procs) *proc { return &p.count }, []string{"cuDeviceGetCount"}, true},
	{func(p *procs) *proc { return &p.device }, []string{"cuDeviceGet"}, true},
	{func(p *procs) *proc { return &p.name }, []string{"cuDeviceGetName"}, true},
	{func(p *procs) *proc { return &p.attribute }, []string{"cuDeviceGetAttribute"}, true},
	{func(p *procs) *proc { return &p.totalMemory }, []string{"cuDeviceTotalMem_v2"}, true},
	{func(p *procs) *proc { return &p.freeMemory }, []string{"cuMemGetInfo_v2"}, true},
	{func(p *procs) *proc { return &p.busID }, []string{"cuDeviceGetPCIBusId"}, false},
	{func(p *procs) *proc { return &p.contextRetain }, []string{"cuDevicePrimaryCtxRetain"}, true},
	{func(p *procs) *proc { return &p.contextRelease }, []string{"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"}, true},
	{func(p *procs) *proc { return &p.setContext }, []string{"cuCtxSetCurrent"}, true},
	{func(p *procs) *proc { return &p.errorName }, []string{"cuGetErrorName"}, false},
	{func(p *procs) *proc { return &p.alloc }, []string{"cuMemAlloc_v2"}, true},
	{func(p *procs) *proc { return &p.free }, []string{"cuMemFree_v2"}, true},
	{func(p *procs) *proc { return &p.pinnedAlloc }, []string{"cuMemHostAlloc"}, true},
	{func(p *procs) *proc { return &p.pinnedFree }, []string{"cuMemFreeHost"}, true},
	{func(p *procs) *proc { return &p.peerAsk }, []string{"cuDeviceCanAccessPeer"}, false},
	{func(p *procs) *proc { return &p.peerEnable }, []string{"cuCtxEnablePeerAccess"}, false},
	{func(p *procs) *proc { return &p.upload }, []string{"cuMemcpyHtoDAsync_v2"}, true},
	{func(p *procs) *proc { return &p.download }, []string{"cuMemcpyDtoHAsync_v2"}, true},
	{func(p *procs) *proc { return &p.copy }, []string{"cuMemcpyDtoDAsync_v2"}, true},
	{func(p *procs) *proc { return &p.fill }, []string{"cuMemsetD8Async"}, true},
	{func(p *procs) *proc { return &p.streamCreate }, []string{"cuStreamCreate"}, true},
	{func(p *procs) *proc { return &p.streamDestroy }, []string{"cuStreamDestroy_v2"}, true},
	{func(p *procs) *proc { return &p.streamWait }, []string{"cuStreamSynchronize"}, true},
	{func(p *procs) *proc { return &p.streamAfter }, []string{"cuStreamWaitEvent"}, true},
	{func(p *procs) *proc { return &p.eventCreate }, []string{"cuEventCreate"}, true},
	{func(p *procs) *proc { return &p.eventDestroy }, []string{"cuEventDestroy_v2"}, true},
	{func(p *procs) *proc { return &p.eventRecord }, []string{"cuEventRecord"}, true},
	{func(p *procs) *proc { return &p.eventWait }, []string{"cuEventSynchronize"}, true},
	{func(p *procs) *proc { return &p.eventElapsed }, []string{"cuEventElapsedTime_v2", "cuEventElapsedTime"}, true},
	{func(p *procs) *proc { return &p.moduleLoad }, []string{"cuModuleLoadData"}, true},
	{func(p *procs) *proc { return &p.moduleUnload }, []string{"cuModuleUnload"}, true},
	{func(p *procs) *proc { return &p.moduleFunction }, []string{"cuModuleGetFunction"}, true},
	{func(p *procs) *proc { return &p.functionAttribute }, []string{"cuFuncGetAttribute"}, false},
	{func(p *procs) *proc { return &p.functionSet }, []string{"cuFuncSetAttribute"}, false},
	{func(p *procs) *proc { return &p.occupancy }, []string{"cuOccupancyMaxActiveBlocksPerMultiprocessor"}, false},
	{func(p *procs) *proc { return &p.launch }, []string{"cuLaunchKernel"}, true},
	{func(p *procs) *proc { return &p.launchCooperative }, []string{"cuLaunchCooperativeKernel"}, false},
	{func(p *procs) *proc { return &p.launchConfigured }, []string{"cuLaunchKernelEx"}, false},
	{func(p *procs) *proc { return &p.captureBegin }, []string{"cuStreamBeginCapture_v2"}, false},
	{func(p *procs) *proc { return &p.captureEnd }, []string{"cuStreamEndCapture"}, false},
	{func(p *procs) *proc { return &p.graphInstantiate }, []string{"cuGraphInstantiateWithFlags"}, false},
	{func(p *procs) *proc { return &p.graphInstantiateLog }, []string{"cuGraphInstantiate_v2"}, false},
	{func(p *procs) *proc { return &p.graphDestroy }, []string{"cuGraphDestroy"}, false},
	{func(p *procs) *proc { return &p.graphLaunch }, []string{"cuGraphLaunch"}, false},
	{func(p *procs) *proc { return &p.execDestroy }, []string{"cuGraphExecDestroy"}, false},
}

var nvrtcSymbols = []compilerSymbol{
	{func(p *compilerProcs) *proc { return &p.version }, "nvrtcVersion", true},
	{func(p *compilerProcs) *proc { return &p.create }, "nvrtcCreateProgram", true},
	{func(p *compilerProcs) *proc { return &p.destroy }, "nvrtcDestroyProgram", true},
	{func(p *compilerProcs) *proc { return &p.compile }, "nvrtcCompileProgram", true},
	{func(p *compilerProcs) *proc { return &p.logSize }, "nvrtcGetProgramLogSize", true},
	{func(p *compilerProcs) *proc { return &p.log }, "nvrtcGetProgramLog", true},
	{func(p *compilerProcs) *proc { return &p.codeSize }, "nvrtcGetCUBINSize", false},
	{func(p *compilerProcs) *proc { return &p.code }, "nvrtcGetCUBIN", false},
	{func(p *compilerProcs) *proc { return &p.ptxSize }, "nvrtcGetPTXSize", true},
	{func(p *compilerProcs) *proc { return &p.ptx }, "nvrtcGetPTX", true},
	{func(p *compilerProcs) *proc { return &p.archCount }, "nvrtcGetNumSupportedArchs", false},
	{func(p *compilerProcs) *proc { return &p.archs }, "nvrtcGetSupportedArchs", false},
	{func(p *compilerProcs) *proc { return &p.errorName }, "nvrtcGetErrorString", false},
}

// cudaDialect is what CUDA numbers and means in its own way.
var cudaDialect = dialect{
	api:     hip.CUDA,
	symbols: cudaSymbols, compilerSymbols: nvrtcSymbols,
	success: "CUDA_SUCCESS",
	attributes: attributes{
		threads: 1, units: 16, lds: 8, ldsOptin: 97, wave: 10, cooperative: 95,
		clock: 13, memoryClock: 36, busWidth: 37, l2: 38, integrated: 18, major: 75, minor: 76,
	},
	faults: map[int32]meaning{
		2:   {ErrMemory, hintMemory},
		3:   {nil, hintDriver},
		100: {ErrNoDevice, ""},
		200: {nil, hintTarget},
		209: {nil, hintTarget},
		222: {nil, hintTarget},
		214: {ErrLost, hintLost},
		700: {ErrLost, hintLost},
		702: {ErrLost, hintLost},
		710: {ErrLost, hintLost},
		714: {ErrLost, hintLost},
		715: {ErrLost, hintLost},
		716: {ErrLost, hintLost},
		717: {ErrLost, hintLost},
		718: {ErrLost, hintLost},
		719: {ErrLost, hintLost},
		803: {nil, hintDriver},
		900: {nil, hintCapture},
	},
}

// cudaArch returns how NVRTC is told the target: sm_90 for machine code of
// exactly that GPU, or, where the GPU is newer than the compiler or machine
// code cannot be had, compute_NN for PTX, which the driver translates.
func (c *Compiler) cudaArch(t hip.Target) (arch string, exact bool) {
	wanted, err := strconv.Atoi(strings.TrimRight(strings.TrimPrefix(t.Arch, "sm_"), "af"))
	if err != nil {
		return t.Arch, true
	}
	best := wanted
	if c.archs != nil {
		best = 0
		for _, a := range c.archs {
			if a <= wanted {
				best = max(best, a)
			}
		}
	}
	if best == wanted && c.procs.code.ok() {
		if wanted == 90 && !strings.HasPrefix(c.version, "11.") {
			return "sm_90a", true // has wgmma, which sm_90 has not
		}
		return t.Arch, true
	}
	return "compute_" + strconv.Itoa(best), false
}
