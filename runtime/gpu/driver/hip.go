package driver

import (
	"bytes"
	"strings"

	"github.com/nstf/nstf/kernels/hip"
)

// hipSymbols is what is wanted of libamdhip64. Required is what ROCm 5.0 has
// and nothing works without.
var hipSymbols = []symbol{
	{func(p *procs) *proc { return &p.init }, []string{"hipInit"}, true},
	{func(p *procs) *proc { return &p.runtimeVersion }, []string{"hipRuntimeGetVersion"}, true},
	{func(p *procs) *proc { return &p.driverVersion }, []string{"hipDriverGetVersion"}, false},
	{func(p *procs) *proc { return &p.count }, []string{"hipGetDeviceCount"}, true},
	{func(p *procs) *proc { return &p.device }, []string{"hipDeviceGet"}, true},
	{func(p *procs) *proc { return &p.name }, []string{"hipDeviceGetName"}, true},
	{func(p *procs) *proc { return &p.attribute }, []string{"hipDeviceGetAttribute"}, true},
	{func(p *procs) *proc { return &p.totalMemory }, []string{"hipDeviceTotalMem"}, true},
	{func(p *procs) *proc { return &p.freeMemory }, []string{"hipMemGetInfo"}, true},
	{func(p *procs) *proc { return &p.busID }, []string{"hipDeviceGetPCIBusId"}, false},
	{func(p *procs) *proc { return &p.setDevice }, []string{"hipSetDevice"}, true},
	{func(p *procs) *proc { return &p.properties }, []string{"hipGetDevicePropertiesR0600", "hipGetDeviceProperties"}, true},
	{func(p *procs) *proc { return &p.errorName }, []string{"hipGetErrorName"}, false},
	{func(p *procs) *proc { return &p.alloc }, []string{"hipMalloc"}, true},
	{func(p *procs) *proc { return &p.free }, []string{"hipFree"}, true},
	{func(p *procs) *proc { return &p.pinnedAlloc }, []string{"hipHostMalloc"}, true},
	{func(p *procs) *proc { return &p.pinnedFree }, []string{"hipHostFree"}, true},
	{func(p *procs) *proc { return &p.mapped }, []string{"hipHostGetDevicePointer"}, false},
	{func(p *procs) *proc { return &p.allocFine }, []string{"hipExtMallocWithFlags"}, false},
	{func(p *procs) *proc { return &p.peerAsk }, []string{"hipDeviceCanAccessPeer"}, false},
	{func(p *procs) *proc { return &p.peerEnable }, []string{"hipDeviceEnablePeerAccess"}, false},
	{func(p *procs) *proc { return &p.upload }, []string{"hipMemcpyHtoDAsync"}, true},
	{func(p *procs) *proc { return &p.download }, []string{"hipMemcpyDtoHAsync"}, true},
	{func(p *procs) *proc { return &p.copy }, []string{"hipMemcpyDtoDAsync"}, true},
	{func(p *procs) *proc { return &p.fill }, []string{"hipMemsetD8Async"}, true},
	{func(p *procs) *proc { return &p.streamCreate }, []string{"hipStreamCreateWithFlags"}, true},
	{func(p *procs) *proc { return &p.streamDestroy }, []string{"hipStreamDestroy"}, true},
	{func(p *procs) *proc { return &p.streamWait }, []string{"hipStreamSynchronize"}, true},
	{func(p *procs) *proc { return &p.streamAfter }, []string{"hipStreamWaitEvent"}, true},
	{func(p *procs) *proc { return &p.eventCreate }, []string{"hipEventCreateWithFlags"}, true},
	{func(p *procs) *proc { return &p.eventDestroy }, []string{"hipEventDestroy"}, true},
	{func(p *procs) *proc { return &p.eventRecord }, []string{"hipEventRecord"}, true},
	{func(p *procs) *proc { return &p.eventWait }, []string{"hipEventSynchronize"}, true},
	{func(p *procs) *proc { return &p.eventElapsed }, []string{"hipEventElapsedTime"}, true},
	{func(p *procs) *proc { return &p.moduleLoad }, []string{"hipModuleLoadData"}, true},
	{func(p *procs) *proc { return &p.moduleUnload }, []string{"hipModuleUnload"}, true},
	{func(p *procs) *proc { return &p.moduleFunction }, []string{"hipModuleGetFunction"}, true},
	{func(p *procs) *proc { return &p.functionAttribute }, []string{"hipFuncGetAttribute"}, false},
	{func(p *procs) *proc { return &p.occupancy }, []string{"hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"}, false},
	{func(p *procs) *proc { return &p.launch }, []string{"hipModuleLaunchKernel"}, true},
	{func(p *procs) *proc { return &p.launchCooperative }, []string{"hipModuleLaunchCooperativeKernel"}, false},
	{func(p *procs) *proc { return &p.captureBegin }, []string{"hipStreamBeginCapture"}, false},
	{func(p *procs) *proc { return &p.captureEnd }, []string{"hipStreamEndCapture"}, false},
	{func(p *procs) *proc { return &p.graphInstantiate }, []string{"hipGraphInstantiateWithFlags"}, false},
	{func(p *procs) *proc { return &p.graphInstantiateLog }, []string{"hipGraphInstantiate"}, false},
	{func(p *procs) *proc { return &p.graphDestroy }, []string{"hipGraphDestroy"}, false},
	{func(p *procs) *proc { return &p.graphLaunch }, []string{"hipGraphLaunch"}, false},
	{func(p *procs) *proc { return &p.execDestroy }, []string{"hipGraphExecDestroy"}, false},
}

var hiprtcSymbols = []compilerSymbol{
	{func(p *compilerProcs) *proc { return &p.version }, "hiprtcVersion", true},
	{func(p *compilerProcs) *proc { return &p.create }, "hiprtcCreateProgram", true},
	{func(p *compilerProcs) *proc { return &p.destroy }, "hiprtcDestroyProgram", true},
	{func(p *compilerProcs) *proc { return &p.compile }, "hiprtcCompileProgram", true},
	{func(p *compilerProcs) *proc { return &p.logSize }, "hiprtcGetProgramLogSize", true},
	{func(p *compilerProcs) *proc { return &p.log }, "hiprtcGetProgramLog", true},
	{func(p *compilerProcs) *proc { return &p.codeSize }, "hiprtcGetCodeSize", true},
	{func(p *compilerProcs) *proc { return &p.code }, "hiprtcGetCode", true},
	{func(p *compilerProcs) *proc { return &p.errorName }, "hiprtcGetErrorString", false},
}

// hipDialect is what HIP numbers and means in its own way. Attribute numbers
// are those of hipDeviceAttribute_t since ROCm 5.0.
var hipDialect = dialect{
	api:     hip.HIP,
	symbols: hipSymbols, compilerSymbols: hiprtcSymbols,
	success: "hipSuccess",
	attributes: attributes{
		threads: 56, units: 63, physicalUnits: 10015, lds: 74, wave: 87, cooperative: 10,
		clock: 5, memoryClock: 60, busWidth: 59, l2: 19, integrated: 16,
	},
	faults: map[int32]meaning{
		2:   {ErrMemory, hintMemory},
		3:   {nil, hintDriver},
		35:  {nil, hintDriver},
		100: {ErrNoDevice, ""},
		101: {ErrNoDevice, ""}, // what hipInit of ROCm 5 says without a device
		200: {nil, hintTarget},
		209: {nil, hintTarget},
		700: {ErrLost, hintLost},
		702: {ErrLost, hintLost},
		710: {ErrLost, hintLost},
		719: {ErrLost, hintLost},
		900: {nil, hintCapture},
	},
}

// The two layouts of hipDeviceProp_t: ROCm 6 gave the new one a symbol of its
// own, so the symbol says which it is. The library of ROCm 6 and later still
// answers the old name with the old layout.
const (
	propertiesSize      = 4096 // 1472 bytes in ROCm 6, 792 before; room for a longer one
	archOffsetR0600     = 1160
	archOffsetR0000     = 396
	propertiesNameBytes = 256
)

// archOf finds gcnArchName in device properties. A layout that we do not know
// is searched for what looks like one, behind the device's name.
func archOf(properties []byte, symbol string) string {
	offset := archOffsetR0000
	if symbol == "hipGetDevicePropertiesR0600" {
		offset = archOffsetR0600
	}
	if a := archAt(properties[offset:]); a != "" {
		return a
	}
	for rest := properties[propertiesNameBytes:]; ; {
		i := bytes.Index(rest, []byte("gfx"))
		if i < 0 {
			return ""
		}
		if a := archAt(rest[i:]); a != "" {
			return a
		}
		rest = rest[i+3:]
	}
}

// archAt reads gfx and at least three hexadecimal digits up to a colon (the
// features follow) or a NUL, or returns "".
func archAt(b []byte) string {
	text := cString(b)
	arch, _, _ := strings.Cut(text, ":")
	digits, ok := strings.CutPrefix(arch, "gfx")
	if !ok || len(digits) < 3 || strings.Trim(digits, "0123456789abcdef") != "" {
		return ""
	}
	return arch
}

// cString returns the bytes in front of the first NUL.
func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
