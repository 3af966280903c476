package main

import (
	"errors"
	"fmt"
	"html"
	"strings"
)

// Sizes in pixels. Boxes lie in the middle of the cells of a grid.
const (
	cellWidth, cellHeight = 256, 112
	boxWidth, boxHeight   = 172, 58
	lineHeight            = 15
)

// picture collects the elements of a drawing: groups lie below arrows, and arrows below boxes.
type picture struct {
	columns, rows         int
	boxes                 map[string]point
	groups, arrows, cards strings.Builder
}

type point struct{ x, y float64 }

var errNoSize = errors.New("its first line is not: picture COLUMNS ROWS")

// draw renders a text as an SVG. Each line is one of
//
//	picture COLUMNS ROWS
//	group COLUMN ROW COLUMN ROW title
//	box|ours|aws NAME COLUMN ROW text | second line
//	arrow FROM TO text | second line
func draw(text string) (string, error) {
	p := &picture{boxes: map[string]point{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := p.add(line); err != nil {
			return "", fmt.Errorf("drawing %q: %w", line, err)
		}
	}
	if p.columns == 0 {
		return "", errNoSize
	}
	return p.svg(), nil
}

func (p *picture) add(line string) error {
	kind, rest, _ := strings.Cut(line, " ")
	var name, to string
	var x, y, x2, y2 int
	var err error
	switch kind {
	case "picture":
		_, err = fmt.Sscan(rest, &p.columns, &p.rows)
	case "group":
		if _, err = fmt.Sscan(rest, &x, &y, &x2, &y2); err == nil {
			p.group(x, y, x2, y2, after(rest, 4))
		}
	case "box", "ours", "aws":
		if _, err = fmt.Sscan(rest, &name, &x, &y); err == nil {
			p.box(kind, name, x, y, after(rest, 3))
		}
	case "arrow":
		if _, err = fmt.Sscan(rest, &name, &to); err == nil {
			err = p.arrow(name, to, after(rest, 2))
		}
	default:
		err = errors.New("no such element")
	}
	return err
}

// after returns what follows a number of words.
func after(text string, words int) string {
	fields := strings.Fields(text)
	return strings.Join(fields[min(words, len(fields)):], " ")
}

func (p *picture) group(x, y, x2, y2 int, title string) {
	fmt.Fprintf(&p.groups, `<rect class="group" x="%d" y="%d" width="%d" height="%d" rx="8"/>`+"\n",
		x*cellWidth+8, y*cellHeight+4, (x2-x+1)*cellWidth-16, (y2-y+1)*cellHeight-8)
	fmt.Fprintf(&p.groups, `<text class="title" x="%d" y="%d">%s</text>`+"\n", x*cellWidth+18, y*cellHeight+20, html.EscapeString(title))
}

func (p *picture) box(kind, name string, x, y int, text string) {
	middle := point{float64(x*cellWidth + cellWidth/2), float64(y*cellHeight + cellHeight/2)}
	p.boxes[name] = middle
	fmt.Fprintf(&p.cards, `<rect class="%s" x="%g" y="%g" width="%d" height="%d" rx="6"/>`+"\n",
		kind, middle.x-boxWidth/2, middle.y-boxHeight/2, boxWidth, boxHeight)
	p.cards.WriteString(lines("name", middle, text))
}

func (p *picture) arrow(from, to, text string) error {
	a, okA := p.boxes[from]
	b, okB := p.boxes[to]
	if !okA || !okB || a == b {
		return errors.New("an arrow needs two boxes, which come before it")
	}
	start, end := edge(a, b), edge(b, a)
	fmt.Fprintf(&p.arrows, `<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" marker-end="url(#head)"/>`+"\n", start.x, start.y, end.x, end.y)
	if text != "" {
		p.arrows.WriteString(lines("label", point{(start.x + end.x) / 2, (start.y+end.y)/2 - 2}, text))
	}
	return nil
}

// edge returns where the line from a box to another point leaves the box.
func edge(from, to point) point {
	dx, dy := to.x-from.x, to.y-from.y
	share := min(ratio(boxWidth/2+2, dx), ratio(boxHeight/2+2, dy))
	return point{from.x + dx*share, from.y + dy*share}
}

func ratio(half, distance float64) float64 {
	if distance == 0 {
		return 1
	}
	return half / max(distance, -distance)
}

// lines writes the parts of a text between bars below each other, around a point.
func lines(class string, middle point, text string) string {
	var all strings.Builder
	parts := strings.Split(text, "|")
	y := middle.y - float64(len(parts)-1)*lineHeight/2 + 4
	for i, part := range parts {
		style := class
		if i > 0 && class == "name" {
			style = "detail"
		}
		fmt.Fprintf(&all, `<text class="%s" x="%.0f" y="%.0f">%s</text>`+"\n", style, middle.x, y+float64(i*lineHeight), html.EscapeString(strings.TrimSpace(part)))
	}
	return all.String()
}

const style = `<style>
text { font: 11px sans-serif; text-anchor: middle; fill: #222 }
.name { font-weight: bold; font-size: 13px }
.title { text-anchor: start; fill: #666 }
.label { paint-order: stroke; stroke: #fff; stroke-width: 4px }
rect { stroke: #777; fill: #f4f4f4 }
.ours { fill: #dcebfb; stroke: #2b6cb0 }
.aws { fill: #fdebd3; stroke: #c05621 }
.group { fill: none; stroke-dasharray: 5 4 }
.page { fill: #fff; stroke: none }
line { stroke: #555; stroke-width: 1.4 }
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>
`

func (p *picture) svg() string {
	width, height := p.columns*cellWidth, p.rows*cellHeight
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d">`+"\n", width, height, width, height) +
		style + fmt.Sprintf(`<rect class="page" width="%d" height="%d"/>`+"\n", width, height) +
		p.groups.String() + p.arrows.String() + p.cards.String() + "</svg>\n"
}
