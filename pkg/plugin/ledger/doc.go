// Package ledger is what the plugin of kubectl does with the ledger and the trash of file systems. A
// Runner answers its requests by Jobs, with the rights of the user; what follows from the answers is decided
// by pure functions.
package ledger
