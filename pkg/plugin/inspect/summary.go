package inspect

import (
	"fmt"
	"strconv"
	"strings"
)

// Summary is the level in words.
func (s Status) Summary() string {
	switch s.Level {
	case Problem:
		return s.problemsText()
	case Unknown:
		return "no problem found, but you may not read everything"
	case OK, Note:
	}
	return "healthy"
}

// problemsText counts problems of the installation apart from those of single objects, which tenants make.
func (s Status) problemsText() string {
	counts, installation := map[string]int{}, 0
	for _, r := range s.Problems {
		if r.layer < classes {
			installation++
		} else {
			counts[r.check]++
		}
	}
	text := "installation: no problem"
	if installation > 0 {
		text = "installation: " + count(installation, "problem")
	}
	others := len(s.Problems) - installation
	switch objects := objectsText(counts); others {
	case 0:
		return text
	case 1:
		return text + "; " + objects + " has a problem"
	default:
		return text + "; " + objects + " have problems"
	}
}

// objectsText names the objects that checks of a layer below the installation have counted.
func objectsText(counts map[string]int) string {
	var texts []string
	for _, kind := range []struct{ check, one, many string }{
		{"claims", "claim", "claims"},
		{"classes", "class", "classes"},
		{"volumes", "volume", "volumes"},
		{"shared volumes", "SharedVolume", "SharedVolumes"},
	} {
		switch n := counts[kind.check]; n {
		case 0:
		case 1:
			texts = append(texts, "1 "+kind.one)
		default:
			texts = append(texts, fmt.Sprintf("%d %s", n, kind.many))
		}
	}
	if last := len(texts) - 1; last > 0 {
		return strings.Join(texts[:last], ", ") + " and " + texts[last]
	}
	return strings.Join(texts, "")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
