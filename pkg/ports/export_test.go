package ports

// EqualExceptTime lets tests compare as Assign does.
func EqualExceptTime(a, b Table) bool { return a.equalExceptTime(b) }
