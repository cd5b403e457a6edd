package driver

// A proc is one C function of a vendor's library.
type proc struct {
	name string
	addr uintptr // 0: this library does not have it
}

// ok reports whether the library has the function.
func (p *proc) ok() bool { return p.addr != 0 }

// procs are the functions of the runtime library. HIP's module interface and
// CUDA's driver interface take the same arguments in the same order, but for
// those that are commented.
type procs struct {
	init, runtimeVersion, driverVersion                     proc
	count, device, name, attribute, totalMemory, freeMemory proc
	busID                                                   proc // (char*, int, device)
	setDevice                                               proc // HIP: (ordinal)
	contextRetain, contextRelease, setContext               proc // CUDA: primary context
	properties                                              proc // HIP: (struct*, ordinal)
	errorName                                               proc // HIP: returns char*; CUDA: (code, char**)
	alloc, free, pinnedAlloc, pinnedFree                    proc
	mapped                                                  proc // HIP: (device address*, host address, flags)
	allocFine                                               proc // HIP: (address*, size, flags)
	peerAsk                                                 proc // (int*, device, peer)
	peerEnable                                              proc // HIP: (peer, flags); CUDA: (its context, flags)
	upload, download, copy, fill                            proc
	streamCreate, streamDestroy, streamWait, streamAfter    proc
	eventCreate, eventDestroy, eventRecord, eventWait       proc
	eventElapsed                                            proc
	moduleLoad, moduleUnload, moduleFunction                proc
	functionAttribute, functionSet, occupancy               proc
	launch, launchCooperative                               proc
	launchConfigured                                        proc // CUDA: (config*, function, params, extra)
	captureBegin, captureEnd                                proc
	graphInstantiate                                        proc // (exec*, graph, u64 flags)
	graphInstantiateLog                                     proc // (exec*, graph, node*, char*, size): the older form
	graphDestroy, graphLaunch, execDestroy                  proc
}

// A symbol is a row of a library's table.
type symbol struct {
	to       func(*procs) *proc
	names    []string // the first that exists is taken
	required bool
}

// bind looks up every row and returns the required names that are missing.
func bind(p *procs, table []symbol, lookup func(string) uintptr) (missing []string) {
	for _, row := range table {
		to := row.to(p)
		to.name = row.names[0]
		for _, name := range row.names {
			if a := lookup(name); a != 0 {
				*to = proc{name, a}
				break
			}
		}
		if row.required && to.addr == 0 {
			missing = append(missing, to.name)
		}
	}
	return missing
}

// compilerProcs are the functions of hiprtc and NVRTC, which agree in all
// that both have.
type compilerProcs struct {
	version, create, destroy, compile proc
	logSize, log, codeSize, code      proc
	ptxSize, ptx                      proc // NVRTC: where the GPU is newer than the compiler
	archCount, archs                  proc // NVRTC
	errorName                         proc
}

type compilerSymbol struct {
	to       func(*compilerProcs) *proc
	name     string
	required bool
}

func bindCompiler(p *compilerProcs, table []compilerSymbol, lookup func(string) uintptr) (missing []string) {
	for _, row := range table {
		to := row.to(p)
		*to = proc{row.name, lookup(row.name)}
		if row.required && to.addr == 0 {
			missing = append(missing, row.name)
		}
	}
	return missing
}
