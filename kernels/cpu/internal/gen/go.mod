module github.com/nstf/nstf/kernels/cpu/internal/gen

go 1.26.0

require (
	github.com/mmcloughlin/avo v0.6.0
	golang.org/x/arch v0.6.0
)

require golang.org/x/sys v0.49.0 // indirect

require (
	github.com/nstf/nstf v0.0.0
	golang.org/x/mod v0.35.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/tools v0.44.0 // indirect
)

replace github.com/nstf/nstf => ../../../..
