package cpu

// The assembly is written by the module in internal/gen and committed, so that
// building needs neither it nor avo. After a change there: go generate.

//go:generate go -C internal/gen run . -kernel dot -out ../../dot_amd64.s -stubs ../../dot_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel vector -out ../../vector_amd64.s -stubs ../../vector_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel half -out ../../half_amd64.s -stubs ../../half_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel exp -out ../../exp_amd64.s -stubs ../../exp_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel gemm -out ../../gemm_amd64.s -stubs ../../gemm_amd64.go -pkg cpu
