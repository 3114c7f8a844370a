package response

// Bypassed reports whether a handler that was silent has answered all the same, through the writer
// that the answers of this one go to. That writer may have a method of this name, and then it is
// sure. Otherwise only the header tells. It must be called after Close.
func (rec *Recorder) Bypassed() (past, sure bool) {
	if !rec.silent {
		return false, false
	}
	if w, ok := rec.w.(interface{ Bypassed() bool }); ok {
		return w.Bypassed(), true
	}
	outer := rec.w.Header()
	return len(outer) > int(rec.outerFields) && (outer["Content-Type"] != nil || outer["Location"] != nil), false
}

// Late reports whether a handler that was silent has written since.
func (rec *Recorder) Late() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.late
}

// Silent reports whether the handler has returned without a status and without a byte. It
// must be called after Close.
func (rec *Recorder) Silent() bool { return rec.silent }

// Second returns the status of 500 or above that was to take the place of the handler's answer, but came after its
// header, and 0 if there was none. A recovery inside the guard says 500 then, and middleware.Timeout of chi 504, when
// the time that it gives the handler is over. Of several it is the one that counts: behind a success the first that is
// not 504, and behind a refusal 504. It must be called after Close.
func (rec *Recorder) Second() int { return rec.second }

// Short reports whether the body is shorter than the handler declared.
func (rec *Recorder) Short() bool { return rec.declared >= 0 && rec.written < rec.declared }
