// Package operations is the contract between the manager and mountjob: what a mount Job is asked
// to do, and what it reports.
package operations
