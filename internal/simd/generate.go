package simd

// The generator in gen, a separate module, writes the assembly; its output is committed. `go
// generate ./internal/simd` regenerates it.

//go:generate go -C gen run . -set gemm512 -pkg simd -out ../gemm_avx512_amd64.s -table ../gemm_avx512_amd64.go
//go:generate go -C gen run . -set gemm2 -pkg simd -out ../gemm_avx2_amd64.s -table ../gemm_avx2_amd64.go
//go:generate go -C gen run . -set brain512 -pkg simd -out ../brain_avx512_amd64.s -table ../brain_avx512_amd64.go
//go:generate go -C gen run . -set amx -pkg simd -out ../gemm_amx_amd64.s -table ../gemm_amx_amd64.go
//go:generate go -C gen run . -set vec512 -pkg simd -out ../vec_avx512_amd64.s -stubs ../vec_avx512_amd64.go
//go:generate go -C gen run . -set vec2 -pkg simd -out ../vec_avx2_amd64.s -stubs ../vec_avx2_amd64.go
//go:generate go -C gen run . -set act512 -pkg simd -out ../act_avx512_amd64.s -stubs ../act_avx512_amd64.go
//go:generate go -C gen run . -set act2 -pkg simd -out ../act_avx2_amd64.s -stubs ../act_avx2_amd64.go
//go:generate go -C gen run . -set window512 -pkg simd -out ../window_avx512_amd64.s -stubs ../window_avx512_amd64.go
//go:generate go -C gen run . -set window2 -pkg simd -out ../window_avx2_amd64.s -stubs ../window_avx2_amd64.go
//go:generate go -C gen run . -set norm512 -pkg simd -out ../norm_avx512_amd64.s -stubs ../norm_avx512_amd64.go
//go:generate go -C gen run . -set norm2 -pkg simd -out ../norm_avx2_amd64.s -stubs ../norm_avx2_amd64.go
//go:generate go -C gen run . -set seq512 -pkg simd -out ../seq_avx512_amd64.s -stubs ../seq_avx512_amd64.go
//go:generate go -C gen run . -set seq2 -pkg simd -out ../seq_avx2_amd64.s -stubs ../seq_avx2_amd64.go
//go:generate go -C gen run . -set winograd512 -pkg simd -out ../winograd_avx512_amd64.s -stubs ../winograd_avx512_amd64.go
//go:generate go -C gen run . -set winograd2 -pkg simd -out ../winograd_avx2_amd64.s -stubs ../winograd_avx2_amd64.go
//go:generate go -C gen run . -set opt512 -pkg simd -out ../optim_avx512_amd64.s -stubs ../optim_avx512_amd64.go
//go:generate go -C gen run . -set opt2 -pkg simd -out ../optim_avx2_amd64.s -stubs ../optim_avx2_amd64.go
//go:generate go -C gen run . -set rows512 -pkg simd -out ../rows_avx512_amd64.s -stubs ../rows_avx512_amd64.go
//go:generate go -C gen run . -set rows2 -pkg simd -out ../rows_avx2_amd64.s -stubs ../rows_avx2_amd64.go
//go:generate go -C gen run . -set reduce512 -pkg simd -out ../reduce_avx512_amd64.s -stubs ../reduce_avx512_amd64.go
//go:generate go -C gen run . -set reduce2 -pkg simd -out ../reduce_avx2_amd64.s -stubs ../reduce_avx2_amd64.go
//go:generate go -C gen run . -set compress512 -pkg simd -out ../compress_avx512_amd64.s -stubs ../compress_avx512_amd64.go
//go:generate go -C gen run . -set compress2 -pkg simd -out ../compress_avx2_amd64.s -stubs ../compress_avx2_amd64.go
