// Package rebuild plans the volumes and claims of directories that exist: those that the ledger has of
// a lost cluster, and those that nobody owns yet.
//
//	Rebuild, Import --Item--> PrintObjects, or the ledger and the apiserver
//
// Every plan depends on its arguments only, and nothing that exists is changed by one.
package rebuild
