package webhook

import "example.com/idempotency/internal/jcs"

// Bodies of which a sender signs values, and not bytes: parsers must find the same values there.

func mustPaths(prefix string, members ...string) []jcs.Path {
	var paths []jcs.Path
	for _, m := range members {
		path, err := jcs.ParsePath(prefix + m)
		if err != nil {
			panic(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// readInOneWay returns an error for a body that is not JSON, and for one in which parsers find
// different values at the paths.
func readInOneWay(body []byte, paths []jcs.Path) error {
	d, err := jcs.Read(body)
	if err != nil {
		return err
	}
	defer d.Free()
	for _, path := range paths {
		if _, err := d.Select(path); err != nil {
			return err
		}
	}
	return nil
}
