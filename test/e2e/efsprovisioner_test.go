//go:build e2e

package e2e

// efsProvisionerSet is the StatefulSet of efs-provisioner's README, with its class in the old
// annotation and its claims of 1Mi for one pod each. It is changed to apps/v1, which requires a
// selector, and to busybox, because the lab has no image of nginx.
const efsProvisionerSet = `apiVersion: v1
kind: Service
metadata:
  name: nginx
  labels:
    app: nginx
spec:
  ports:
  - port: 80
    name: web
  clusterIP: None
  selector:
    app: nginx
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: web
spec:
  serviceName: "nginx"
  replicas: 3
  selector:
    matchLabels:
      app: nginx
  template:
    metadata:
      labels:
        app: nginx
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - name: nginx
        image: registry.lab:5000/lab/toolbox:1
        command: [sh, -ec, "cd /usr/share/nginx/html; hostname > index.html; exec httpd -f -p 80"]
        ports:
        - containerPort: 80
          name: web
        volumeMounts:
        - name: efs
          mountPath: /usr/share/nginx/html
  volumeClaimTemplates:
  - metadata:
      name: efs
      annotations:
        volume.beta.kubernetes.io/storage-class: aws-efs
    spec:
      accessModes: [ "ReadWriteOnce" ]
      resources:
        requests:
          storage: 1Mi
---
`

// efsProvisionerReplicasAreSeparate: with the class of the same README under another name.
func efsProvisionerReplicasAreSeparate(l *lab) {
	ns := l.namespace("replicas")
	l.classes(classText("aws-efs", "gidMin: '40000'", "gidMax: '50000'", "gidAllocate: 'true'"), "aws-efs")
	l.apply(ns, efsProvisionerSet)
	l.expectSeparateReplicas(ns, "web", "efs", "index.html")
}
