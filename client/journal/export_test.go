package journal

// EncodeLine returns a line of the file of a journal with any object.
func EncodeLine(object string) []byte {
	return append(append(checksum([]byte(object)), object...), '\n')
}
