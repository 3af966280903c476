// Package mountjobs turns the operations that wait for a file system into one Kubernetes Job,
// and a Job with its pods back into what became of each operation.
//
//	waiting operations --Pack--> a batch --Build--> Job --mountjob--> pod --Read--> results
//	                                                     never starts --Diagnose--> what to do
//
// Everything is decided from the arguments alone; time and objects come in from the caller, who
// is also the only one to write. The program that the Job runs is cmd/mountjob.
package mountjobs
