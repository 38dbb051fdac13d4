"""Who this node is: its instance type and profile, its GPUs by serial, its versions. For the agent and `sickbay check`.

It looks through a Host and knows model, ports and catalog only; `checks/` may know it. It must never occupy a GPU.
"""
