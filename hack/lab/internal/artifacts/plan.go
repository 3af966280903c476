package artifacts

import (
	"context"
	"time"
)

// Part is a build or download that every lab needs.
type Part struct {
	Title   string        `json:"title"`
	Usually time.Duration `json:"usually"` // how long making it takes on two processors, beside the others; nanoseconds in JSON
	Cached  bool          `json:"cached"`
}

// Titles of the parts.
const (
	ComponentsTitle = "Kubernetes and etcd"
	NodeTitle       = "node file system and kernel"
	ToolsTitle      = "tools: nfs-ganesha, registry"
	ToolboxTitle    = "toolbox"
	EmulatorTitle   = "QEMU"
)

// Plan returns the parts, whether each is cached, and the time that it usually takes. tools are the packages of
// ToolsRoot.
func (m Maker) Plan(ctx context.Context, tools []string) ([]Part, error) {
	_, _, components, err := m.componentsKey(ctx)
	if err != nil {
		return nil, err
	}
	return []Part{
		{ComponentsTitle, 11 * time.Minute, m.Cache.Has(componentsKind, components)},
		{NodeTitle, 2 * time.Minute, m.Cache.Has(nodeKind, m.nodeKey())},
		{ToolsTitle, time.Minute, m.Cache.Has(toolsKind, m.extractedKey(latestSuite, tools))},
		{ToolboxTitle, time.Minute, m.Cache.Has(toolboxKind, m.extractedKey(latestSuite, toolboxPackages()))},
		{EmulatorTitle, time.Minute, m.Cache.Has(emulatorKind, m.extractedKey(latestSuite, emulatorPackages()))},
	}, nil
}
