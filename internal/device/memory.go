package device

// Memory is a [Group] whose devices say how much of their memory is in use.
type Memory interface {
	// Memory returns the free and the total bytes of each rank's device,
	// whoever uses the rest. It asks on the ranks' threads, so it must not run
	// on one, and while no rank captures.
	Memory() (free, total []uint64, err error)
}

// InUse is how many bytes of rank 0's device are in use, by whoever; known is
// false where the device does not say. It is called as [Memory.Memory] is.
func InUse(g Group) (bytes int64, known bool) {
	m, ok := g.(Memory)
	if !ok {
		return 0, false
	}
	free, total, err := m.Memory()
	if err != nil || len(free) == 0 || total[0] < free[0] {
		return 0, false
	}
	return int64(total[0] - free[0]), true
}
