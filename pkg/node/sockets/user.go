package sockets

import "golang.org/x/sys/unix"

// ListeningAs lists those of Listening that one user has opened. No socket is that of -1, which OwnUID returns
// for root: root has many that are not of this program.
func (l *Lister) ListeningAs(uid int) (Listeners, error) {
	all := Listeners{}
	err := l.dump(1<<unix.BPF_TCP_LISTEN, conditionLocal, func(s socket) {
		if int(s.UID) == uid {
			all[s.ID.local()] = append(all[s.ID.local()], s.Inode)
		}
	})
	return all, err
}
