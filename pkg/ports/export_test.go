package ports

// EqualButTime lets tests compare as Assign does.
func EqualButTime(a, b Table) bool { return a.equalButTime(b) }

// MostBytes is the bound on the length of an encoded table.
func MostBytes(t Table) int { return mostBytes(t.fields(), 0) }
