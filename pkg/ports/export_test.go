package ports

// EqualButTime lets tests compare as Assign does.
func EqualButTime(a, b Table) bool { return a.equalButTime(b) }
