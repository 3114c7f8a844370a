package journal

// EncodeLine returns a line of the file of a journal with any object.
func EncodeLine(object string) []byte {
	return append(append(checksum([]byte(object)), object...), '\n')
}

// Keys returns the keys of the names in the content of a file, or the error of [Open].
func Keys(data []byte) (map[string]string, error) {
	c, err := read(data)
	if err != nil {
		return nil, err
	}
	j := &Journal{entries: make(map[string]*entry)}
	for _, l := range c.lines {
		j.apply(l)
	}
	keys := make(map[string]string, len(j.entries))
	for name, e := range j.entries {
		keys[name] = e.Key
	}
	return keys, nil
}
