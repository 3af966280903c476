//go:build e2e

package e2e

// efsProvisionerSet is the StatefulSet of efs-provisioner's README, with its class in the old
// annotation and its claims of 1Mi for one pod each. Kubernetes has no apps/v1beta1 any more, and
// apps/v1 wants a selector. The lab has no image of nginx: busybox serves, a page of its own.
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

// efsProvisionerReplicasAreApart with the class of the same README, but for its name.
func efsProvisionerReplicasAreApart(l *lab) {
	ns := l.namespace("replicas")
	l.classes(classText("aws-efs", "gidMin: '40000'", "gidMax: '50000'", "gidAllocate: 'true'"), "aws-efs")
	l.apply(ns, efsProvisionerSet)
	l.replicasAreApart(ns, "web", "efs", "index.html")
}
