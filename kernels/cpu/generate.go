package cpu

// The assembly is written by the module in internal/gen and committed, so that
// building needs neither it nor avo. After a change there: go generate.

//go:generate go -C internal/gen run . -kernel dot -out ../../dot_amd64.s -stubs ../../dot_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel vector -out ../../vector_amd64.s -stubs ../../vector_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel delta -out ../../delta_amd64.s -stubs ../../delta_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel scan -out ../../scan_amd64.s -stubs ../../scan_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel half -out ../../half_amd64.s -stubs ../../half_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel exp -out ../../exp_amd64.s -stubs ../../exp_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel gemm -out ../../gemm_amd64.s -stubs ../../gemm_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel panel -out ../../panel_amd64.s -stubs ../../panel_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel kvcodes -out ../../kvcodes_amd64.s -stubs ../../kvcodes_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel norm -out ../../norm_amd64.s -stubs ../../norm_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel tile -out ../../tile_amd64.s -stubs ../../tile_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel strips -out ../../strips_amd64.s -stubs ../../strips_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel codes -out ../../codes_amd64.s -stubs ../../codes_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel unpack -out ../../unpack_amd64.s -stubs ../../unpack_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel quantize -out ../../quantize_amd64.s -stubs ../../quantize_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel eights -out ../../eights_amd64.s -stubs ../../eights_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q40 -out ../../q40_amd64.s -stubs ../../q40_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q41 -out ../../q41_amd64.s -stubs ../../q41_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q50 -out ../../q50_amd64.s -stubs ../../q50_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q51 -out ../../q51_amd64.s -stubs ../../q51_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q80 -out ../../q80_amd64.s -stubs ../../q80_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel iq4nl -out ../../iq4nl_amd64.s -stubs ../../iq4nl_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel iq4xs -out ../../iq4xs_amd64.s -stubs ../../iq4xs_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q4k -out ../../q4k_amd64.s -stubs ../../q4k_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q5k -out ../../q5k_amd64.s -stubs ../../q5k_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q6k -out ../../q6k_amd64.s -stubs ../../q6k_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q3k -out ../../q3k_amd64.s -stubs ../../q3k_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q2k -out ../../q2k_amd64.s -stubs ../../q2k_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel mxfp4 -out ../../mxfp4_amd64.s -stubs ../../mxfp4_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel nvfp4 -out ../../nvfp4_amd64.s -stubs ../../nvfp4_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q10 -out ../../q10_amd64.s -stubs ../../q10_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel q20 -out ../../q20_amd64.s -stubs ../../q20_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel probe -out ../../probe_amd64.s -stubs ../../probe_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel trellis -out ../../trellis_amd64.s -stubs ../../trellis_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel tcq -out ../../tcq_amd64.s -stubs ../../tcq_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel lanes -out ../../lanes_amd64.s -stubs ../../lanes_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel fixed -out ../../fixed_amd64.s -stubs ../../fixed_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel decode -out ../../decode_amd64.s -stubs ../../decode_amd64.go -pkg cpu
//go:generate go -C internal/gen run . -kernel parts -out ../../parts_amd64.s -stubs ../../parts_amd64.go -pkg cpu
//go:generate go -C internal/gen run ./narrow ../../*_amd64.s
