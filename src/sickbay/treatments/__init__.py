"""What a treatment does on the node itself, through the Host door: reset a GPU, reboot the machine.

Run by `sickbay node …`, which a Kubernetes Job, a Slurm step or an ECS task starts on the node. They know the Host and
the node's state folder, nothing of platforms or cases, and act only on the boot they were sent for.
"""
