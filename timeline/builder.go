package timeline

// Builder fills a timeline; it keeps every text once. The zero value is ready.
// It is used from one goroutine.
type Builder struct {
	T     Timeline
	names map[string]Name
}

// Name returns the index of a text.
func (b *Builder) Name(s string) Name {
	if b.names == nil {
		b.names = map[string]Name{"": 0}
		b.T.Names = append(b.T.Names, "")
	}
	if n, ok := b.names[s]; ok {
		return n
	}
	n := Name(len(b.T.Names))
	b.T.Names = append(b.T.Names, s)
	b.names[s] = n
	return n
}

// NameOf is Name for bytes that the caller goes on using: a text that is known
// already costs no memory.
func (b *Builder) NameOf(s []byte) Name {
	if n, ok := b.names[string(s)]; ok {
		return n
	}
	return b.Name(string(s))
}

// Text returns a name's text.
func (t *Timeline) Text(n Name) string {
	if n < 0 || int(n) >= len(t.Names) {
		return ""
	}
	return t.Names[n]
}
