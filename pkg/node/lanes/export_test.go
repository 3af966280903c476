package lanes

// Len returns the number of lanes.
func (s *Schedule) Len() int { return len(s.lanes) }
