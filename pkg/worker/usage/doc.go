// Package usage counts what volumes use. It reads only, and takes no lock.
package usage
