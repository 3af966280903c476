// Package operations is the contract between the manager and mountjob: the operations that a mount
// Job carries out, and the report that its pod leaves in the termination message.
//
//	manager --Encode--> the Job's annotation --Decode--> mountjob
//	manager <--DecodeReport-- the termination message <--Report.Encode-- mountjob
//
// A sweep Job has no operations, and its termination message is a SweepReport.
package operations
