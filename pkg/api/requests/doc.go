// Package requests is the contract between the plugin of kubectl and "mountjob ledger": what an administrator
// asks about the ledger and the trash of one file system, and the lines of the answer in the pod's log.
package requests
