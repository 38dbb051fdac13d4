// The real PyTorchJob controller and webhook of Kubeflow's training operator, for tests only. Upstream's own main keeps
// its webhook's certificate in a Secret and waits until a kubelet has mounted it at a fixed path; here there is no
// kubelet, so this main takes a folder with a certificate. Everything else is theirs.
package main

import (
	"flag"
	"os"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllers "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/webhooks"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

func main() {
	certificates := flag.String("certificates", "", "folder with tls.crt and tls.key")
	port := flag.Int("port", 0, "of the webhooks, on loopback")
	health := flag.String("health", "", "address of healthz and readyz")
	flag.Parse()
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	ctrl.SetLogger(zap.New())

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(kubeflow.AddToScheme(scheme))
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certificates})
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		WebhookServer:          server,
		HealthProbeBindAddress: *health,
	})
	check(err)
	kind := kubeflow.PyTorchJobKind
	check(controllers.SupportedSchemeReconciler[kind](manager, common.GenNonGangSchedulerSetupFunc(), 4))
	check(webhooks.SupportedSchemeWebhook[kind](manager))
	check(manager.AddHealthzCheck("healthz", healthz.Ping))
	check(manager.AddReadyzCheck("readyz", server.StartedChecker()))
	check(manager.Start(ctrl.SetupSignalHandler()))
}

func check(err error) {
	if err != nil {
		ctrl.Log.Error(err, "cannot go on")
		os.Exit(1)
	}
}
