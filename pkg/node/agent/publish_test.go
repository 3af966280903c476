package agent_test

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// publish writes the table.
func (c *cluster) publish(table ports.Table) { c.publishText(string(ports.Encode(table))) }

// publishText writes the table and its view, as the manager does.
func (c *cluster) publishText(text string) {
	c.Helper()
	c.version++
	table := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wellknown.TargetsConfigMap, UID: "uid-1", ResourceVersion: strconv.Itoa(c.version)},
		Data:       map[string]string{wellknown.TargetsKey: text},
	}
	view, err := ports.NewView(table)
	if err != nil {
		c.Fatal(err)
	}
	c.write(table)
	c.write(view)
}

func (c *cluster) write(object *corev1.ConfigMap) {
	c.Helper()
	maps := c.client.CoreV1().ConfigMaps(namespace)
	_, err := maps.Update(c.Context(), object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(c.Context(), object, metav1.CreateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}
