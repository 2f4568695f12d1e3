// Package kernels is the arithmetic of the CPU device: for every operator of
// package workloads except the collective ones it turns a bound node into a
// function that computes it. Package cpu calls [Compile] when a node is
// prepared and runs the function each time the node is executed; [ScratchBytes]
// tells the planner what the function needs besides its operands.
//
// The package keeps one rule: the bits of a result depend on shapes and
// operands alone. Work is cut into chunks by shape, every sum has a fixed
// order, and the number of threads only decides who computes which chunk.
//
// F16 operands are decoded as they are read and encoded as they are written;
// everything between is float32, or float64 where a sum would otherwise lose
// digits. Products that feed a sum are rounded explicitly (float32(a*b)+c), so
// that a target with fused multiply-add gives the same bits.
package kernels
