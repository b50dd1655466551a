//go:build !cgo

package main

func main() {} // no library without cgo, but the tree still builds and vets: build.sh enables cgo
