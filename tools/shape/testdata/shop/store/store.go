// Package store keeps.
package store

// Store keeps texts.
type Store struct{ texts map[string]string }

// Put keeps a text.
func (s *Store) Put(key, text string) { s.texts[key] = text }
