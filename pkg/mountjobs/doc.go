// Package mountjobs builds a Kubernetes Job from the operations that wait for a file system, and reads the
// result of each operation from the Job and its pods.
//
//	waiting operations --Pack--> a batch --Build--> Job --mountjob--> pod --Read--> results
//	                                                     never starts --Diagnose--> what to do
//
// All functions depend on their arguments only: the caller passes time and objects, and does all writes.
// The program that the Job runs is cmd/mountjob.
package mountjobs
